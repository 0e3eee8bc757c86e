"""What one duplicate check costs with many keys in memory: ours, a peer, and a bare dict as the limit.

In nanoseconds, the measuring loop taken off, the best of several rounds. Two questions, as they cost differently:

- known: the key was marked before. It is found, and nothing changes.
- fresh: the key is new and the set in its steady state, so that each new key also pushes out one that is over.

Keys look like our message ids. A key that is asked for is a new string, as if it had just arrived, with its hash
computed. The order is random, for that is how duplicates come. With a million entries nearly all of the time is
spent waiting for memory, also in the bare dict.
"""

import random
import time
from collections.abc import Callable

ROUNDS = 40
CALLS_PER_ROUND = 5_000
STEP_NS = 1_000

Check = Callable[[str, int], object]


def ours_check_ns(entries: int) -> float:
    """A known key, through `Deduplicator.check_and_mark`."""
    return _known_ns(_ours(entries), entries)


def ours_fresh_ns(entries: int) -> float:
    """A fresh key: checked, marked, and one that is over cleared."""
    return _fresh_ns(_ours(entries), entries)


def cachetools_check_ns(entries: int) -> float:
    return _known_ns(_cachetools(entries), entries)


def cachetools_fresh_ns(entries: int) -> float:
    return _fresh_ns(_cachetools(entries), entries)


def dict_check_ns(entries: int) -> float:
    """The limit for a known key: one lookup in a dict, without even a call around it."""
    marks = dict.fromkeys(_keys("a", range(entries)), 0)
    get = marks.get
    best = float("inf")
    for keys in _rounds_known(entries):
        started = time.perf_counter_ns()
        for key in keys:
            get(key)
        best = min(best, time.perf_counter_ns() - started)
    return (best - _loop_ns(0)) / CALLS_PER_ROUND


def dict_fresh_ns(entries: int) -> float:
    """The limit for a fresh key: looked up and written. Nothing ever leaves this dict."""
    marks = dict.fromkeys(_keys("a", range(entries)), 0)
    get = marks.get
    best = float("inf")
    now_ns = 0
    for keys in _rounds_fresh():
        started = time.perf_counter_ns()
        for key in keys:
            if get(key) is None:
                marks[key] = now_ns
            now_ns += STEP_NS
        best = min(best, time.perf_counter_ns() - started)
    return (best - _loop_ns(STEP_NS)) / CALLS_PER_ROUND


def _ours(entries: int) -> Check:
    from unibus.core.flow.dedup import Deduplicator

    return Deduplicator(entries * STEP_NS / 1e9, entries_max=entries).check_and_mark


def _cachetools(entries: int) -> Check:
    """The lookup and the store that make an idempotency check out of a TTLCache, on the same virtual time."""
    from cachetools import TTLCache

    instant_ns = 0

    def timer() -> int:
        return instant_ns

    cache = TTLCache(entries, entries * STEP_NS, timer)

    def check(key: str, now_ns: int) -> bool:
        nonlocal instant_ns
        instant_ns = now_ns
        if key in cache:
            return False
        cache[key] = None
        return True

    return check


def _known_ns(check: Check, entries: int) -> float:
    # The clock stands still just before the first key is over.
    return _best_ns(check, _rounds_known(entries), _filled(check, entries) - STEP_NS, 0)


def _fresh_ns(check: Check, entries: int) -> float:
    return _best_ns(check, _rounds_fresh(), _filled(check, entries), STEP_NS)


def _filled(check: Check, entries: int) -> int:
    now_ns = 0
    for key in _keys("a", range(entries)):
        check(key, now_ns)
        now_ns += STEP_NS
    return now_ns


def _best_ns(check: Check, rounds: list[list[str]], now_ns: int, step_ns: int) -> float:
    best = float("inf")
    for keys in rounds:
        started = time.perf_counter_ns()
        for key in keys:
            check(key, now_ns)
            now_ns += step_ns
        best = min(best, time.perf_counter_ns() - started)
    return (best - _loop_ns(step_ns)) / CALLS_PER_ROUND


def _loop_ns(step_ns: int) -> int:
    """What the measuring loop takes by itself, at best."""
    keys = _keys("c", range(CALLS_PER_ROUND))
    best = 1 << 62
    for _ in range(ROUNDS):
        now_ns = 0
        started = time.perf_counter_ns()
        for _key in keys:
            now_ns += step_ns
        best = min(best, time.perf_counter_ns() - started)
    return best


def _rounds_known(entries: int) -> list[list[str]]:
    chance = random.Random(1)
    return [_keys("a", chance.choices(range(entries), k=CALLS_PER_ROUND)) for _ in range(ROUNDS)]


def _rounds_fresh() -> list[list[str]]:
    return [_keys("b", range(at * CALLS_PER_ROUND, (at + 1) * CALLS_PER_ROUND)) for at in range(ROUNDS)]


def _keys(tag: str, numbers: range | list[int]) -> list[str]:
    keys = [f"01hx{tag}-{number:016x}" for number in numbers]
    for key in keys:
        hash(key)  # A string keeps its hash.
    return keys
