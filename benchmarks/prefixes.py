"""Who wants this topic, among 1,000 to 100,000 prefixes; what a subscription costs in memory, and under churn.

Fair, because every contender has to give the same answer, which is checked: the distinct peers of all stored
prefixes of the topic, ascending. The prefixes make three levels (plant/line/device/), so that a topic fits three
of them at every size, and a size is dearer only through its size. They come in no order. The peers are what a
program would use: a trie from PyPI (the same bytes, one node per byte), and a dict of prefixes that is scanned with
`startswith`. The limit is a bare bisect in the sorted list of prefixes, which finds a place and no peer.
"""

import gc
import random
import tracemalloc
from bisect import bisect_right
from collections.abc import Callable
from time import perf_counter_ns
from typing import Protocol

from benchmarks.measure import Undelivered
from unibus.core.topics.index import SubscriptionIndex
from unibus.core.topics.pattern import Pattern

SIZES = (1_000, 10_000, 100_000)
ROUNDS = 7
TOPICS = 5_000
SLICE = 100
PREFIXES_PER_PEER = 100

SCANNED = 2_000_000
"""Prefixes that a scan may look at in one round; it gets as few topics as that allows, or it would run for minutes."""

WantedPrefix = tuple[int, bytes]
"""A peer and a prefix that it wants."""


class Contender(Protocol):
    def subscribe(self, peer: int, prefix: bytes) -> None: ...
    def unsubscribe(self, peer: int, prefix: bytes) -> None: ...
    def match(self, topic: bytes) -> tuple[int, ...]: ...


class Ours:
    def __init__(self) -> None:
        self._index = SubscriptionIndex()
        self.match: Callable[[bytes], tuple[int, ...]] = self._index.match

    def subscribe(self, peer: int, prefix: bytes) -> None:
        self._index.subscribe(peer, Pattern.prefix(prefix))

    def unsubscribe(self, peer: int, prefix: bytes) -> None:
        self._index.unsubscribe(peer, Pattern.prefix(prefix))


class ByteTrie:
    """pygtrie: a set of peers at each stored prefix."""

    def __init__(self) -> None:
        import pygtrie

        self._trie = pygtrie.Trie()

    def subscribe(self, peer: int, prefix: bytes) -> None:
        self._trie.setdefault(prefix, set()).add(peer)

    def unsubscribe(self, peer: int, prefix: bytes) -> None:
        peers = self._trie[prefix]
        peers.discard(peer)
        if not peers:
            del self._trie[prefix]

    def match(self, topic: bytes) -> tuple[int, ...]:
        return tuple(sorted({peer for step in self._trie.prefixes(topic) for peer in step.value}))


class Scan:
    """A dict from prefix to peers, and a look at each."""

    def __init__(self) -> None:
        self._peers: dict[bytes, set[int]] = {}

    def subscribe(self, peer: int, prefix: bytes) -> None:
        self._peers.setdefault(prefix, set()).add(peer)

    def unsubscribe(self, peer: int, prefix: bytes) -> None:
        peers = self._peers[prefix]
        peers.discard(peer)
        if not peers:
            del self._peers[prefix]

    def match(self, topic: bytes) -> tuple[int, ...]:
        starts = topic.startswith
        return tuple(sorted({peer for prefix, peers in self._peers.items() if starts(prefix) for peer in peers}))


PEERS: dict[str, Callable[[], Contender]] = {"pygtrie": ByteTrie, "startswith scan": Scan}
CONTENDERS: dict[str, Callable[[], Contender]] = {"ours": Ours, **PEERS}


def match_ns(count: int, contender: str = "ours", rounds: int = ROUNDS) -> float:
    """Nanoseconds of one match that finds three peers among `count` prefixes; the best of some rounds."""
    wanted = wanted_prefixes(count)
    topics = topics_of(wanted, _topic_count(count, contender))
    filled = _filled(contender, wanted)
    _check(filled, wanted, topics)
    match = filled.match
    return _best_ns(lambda some: [match(topic) for topic in some], topics, rounds)


def limit_ns(count: int, rounds: int = ROUNDS) -> float:
    """Nanoseconds of a bare bisect among the same prefixes."""
    wanted = wanted_prefixes(count)
    topics = topics_of(wanted, TOPICS)
    prefixes = sorted(prefix for _, prefix in wanted)
    return _best_ns(lambda some: [bisect_right(prefixes, topic) for topic in some], topics, rounds)


def churn_ns(count: int, contender: str = "ours", rounds: int = ROUNDS) -> float:
    """Nanoseconds of one step of churn: subscribe, match, unsubscribe, match.

    By turns the prefix is below all that are stored and above many of them, where links between prefixes change.
    """
    wanted = wanted_prefixes(count)
    topics = topics_of(wanted, min(_topic_count(count, contender), 1_000))
    filled = _filled(contender, wanted)
    comer = 1 + max(peer for peer, _ in wanted)

    def churn(some: list[bytes]) -> None:
        for number, topic in enumerate(some):
            prefix = topic if number % 2 else topic[: len(topic) // 3]
            filled.subscribe(comer, prefix)
            filled.match(topic)
            filled.unsubscribe(comer, prefix)
            filled.match(topic)

    best = _best_ns(churn, topics, rounds)
    _check(filled, wanted, topics)
    return best


def bytes_per_subscription(count: int, contender: str = "ours") -> float:
    """What one subscription holds, its prefix included, after matches have filled whatever is filled late."""
    wanted = wanted_prefixes(count)
    topics = topics_of(wanted, _topic_count(count, contender))
    _filled(contender, wanted[:1])
    gc.collect()
    tracemalloc.start()
    before, _peak = tracemalloc.get_traced_memory()
    filled = _filled(contender, wanted)
    for topic in topics:
        filled.match(topic)
    gc.collect()
    after, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / count


def wanted_prefixes(count: int) -> list[WantedPrefix]:
    """`count` different prefixes on three levels, a tenth of them above the others, dealt out to peers in no order."""
    chance = random.Random(count)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 12))) for _ in range(500)]
    plants = [f"{word}{number}/" for number, word in enumerate(words[:20])]
    lines = [f"{chance.choice(plants)}{chance.choice(words)}{number}/" for number in range(count // 10 - len(plants))]
    rest = count - len(plants) - len(lines)
    devices = [f"{chance.choice(lines)}{chance.choice(words)}{number}/" for number in range(rest)]
    prefixes = [name.encode() for name in plants + lines + devices]
    chance.shuffle(prefixes)
    return [(number // PREFIXES_PER_PEER, prefix) for number, prefix in enumerate(prefixes)]


def topics_of(wanted: list[WantedPrefix], count: int) -> list[bytes]:
    """Topics below random devices, so that each fits a plant, a line and a device."""
    devices = [prefix for _, prefix in wanted if prefix.count(b"/") == 3]
    return [device + b"temperature" for device in random.Random(count).choices(devices, k=count)]


def _filled(contender: str, wanted: list[WantedPrefix]) -> Contender:
    """Prefixes are copied, so that each contender pays for its own and none shares them with the topics."""
    made = CONTENDERS[contender]()
    for peer, prefix in wanted:
        made.subscribe(peer, bytes(bytearray(prefix)))
    return made


def _topic_count(count: int, contender: str) -> int:
    return max(5, SCANNED // count) if contender == "startswith scan" else TOPICS


def _check(filled: Contender, wanted: list[WantedPrefix], topics: list[bytes]) -> None:
    owners = {prefix: peer for peer, prefix in wanted}
    for topic in topics[:200]:
        starts = (topic[:size] for size in range(len(topic) + 1))
        if filled.match(topic) != tuple(sorted({owners[start] for start in starts if start in owners})):
            raise Undelivered(f"wrong peers for {topic!r}")


def _best_ns(work: Callable[[list[bytes]], object], topics: list[bytes], rounds: int) -> float:
    """The best round of each slice of the topics, added up.

    Every round goes through all topics, so that none is answered from a warmer cache than the others leave behind;
    but what disturbs the machine spoils only a slice of a round and not all of it.
    """
    slices = [topics[start : start + SLICE] for start in range(0, len(topics), SLICE)]
    best = [0] * len(slices)
    for _ in range(rounds):
        gc.collect()
        for number, some in enumerate(slices):
            start = perf_counter_ns()
            work(some)
            elapsed = perf_counter_ns() - start
            best[number] = min(best[number] or elapsed, elapsed)
    return sum(best) / len(topics)
