"""The dedup window of a channel: exact in time, bounded in memory and in work."""

import gc
import itertools
import math
import random
import threading
import tracemalloc
from collections.abc import Callable

import pytest

from unibus.core.flow.dedup import PLACES_PER_EXPIRE, PLACES_PER_MARK, Deduplicator
from unibus.errors import ConfigInvalid
from unibus.limits import DEDUP_ENTRIES_MAX, DEDUP_WINDOW_S_MAX

SECOND = 1_000_000_000
MANY = 20_000
"""More than one part and many chunks."""


def keys(count: int, tag: str = "k") -> list[str]:
    return [f"{tag}{number}" for number in range(count)]


def marked(*names: str, window_s: float = 10.0, entries_max: int = DEDUP_ENTRIES_MAX, now_ns: int = 0) -> Deduplicator:
    dedup = Deduplicator(window_s, entries_max)
    for name in names:
        dedup.mark(name, now_ns)
    return dedup


def known(dedup: Deduplicator, names: list[str], now_ns: int) -> list[str]:
    return [name for name in names if dedup.seen(name, now_ns)]


def test_a_key_is_fresh_once() -> None:
    dedup = Deduplicator(10.0)
    assert dedup.check_and_mark("a", 0)
    assert not dedup.check_and_mark("a", 0)
    assert not dedup.check_and_mark("a", 5)
    assert dedup.check_and_mark("b", 5)


def test_a_key_is_fresh_again_exactly_one_window_later() -> None:
    dedup = marked("a", window_s=10.0, now_ns=7)
    assert dedup.seen("a", 7 + 10 * SECOND - 1)
    assert not dedup.seen("a", 7 + 10 * SECOND)
    assert dedup.check_and_mark("a", 7 + 10 * SECOND)


def test_a_duplicate_does_not_prolong_the_window() -> None:
    dedup = marked("a")
    assert not dedup.check_and_mark("a", 9 * SECOND)
    assert dedup.check_and_mark("a", 10 * SECOND)


def test_a_second_mark_begins_the_window_anew() -> None:
    dedup = marked("a")
    dedup.mark("a", 9 * SECOND)
    assert len(dedup) == 1
    assert dedup.seen("a", 19 * SECOND - 1)
    assert not dedup.seen("a", 19 * SECOND)


def test_looking_changes_nothing() -> None:
    dedup = marked("a")
    assert not dedup.seen("b", 0)
    assert not dedup.seen("a", 11 * SECOND)
    assert len(dedup) == 1
    # Not even the time: a look into the future makes nothing over.
    assert not dedup.check_and_mark("a", 5 * SECOND)
    assert dedup.check_and_mark("b", 5 * SECOND)


def test_a_forgotten_key_is_fresh() -> None:
    # A publish that failed after the mark leaves no trace.
    dedup = marked("a", "b")
    assert dedup.forget("a")
    assert not dedup.forget("a")
    assert not dedup.forget("never marked")
    assert len(dedup) == 1
    assert dedup.check_and_mark("a", 1)
    assert not dedup.check_and_mark("b", 1)


def test_time_that_goes_back_forgets_nothing_and_brings_nothing_back() -> None:
    dedup = marked("a", now_ns=100 * SECOND)
    assert not dedup.check_and_mark("a", 50 * SECOND)
    assert dedup.check_and_mark("b", 50 * SECOND)  # Marked as of second 100.
    assert dedup.seen("b", 109 * SECOND)
    assert dedup.check_and_mark("c", 115 * SECOND)
    assert not dedup.seen("a", 100 * SECOND)
    assert dedup.check_and_mark("a", 100 * SECOND)
    assert dedup.seen("a", 124 * SECOND)


def test_what_was_over_once_stays_over_when_time_goes_back() -> None:
    names = keys(5)
    dedup = marked(*names)
    dedup.mark("later", 10 * SECOND)  # Clears only some of them.
    assert len(dedup) > 1
    assert known(dedup, names, 5 * SECOND) == []


def test_any_text_is_a_key() -> None:
    odd = ["", " ", "None", "\0", "ü", "\ud800", "x" * 100_000]
    dedup = marked(*odd)
    assert len(dedup) == len(odd)
    assert known(dedup, odd, 1) == odd
    assert dedup.check_and_mark("none", 1)


def test_the_oldest_is_forgotten_early_at_the_bound_and_that_is_counted() -> None:
    dedup = marked("a", "b", "c", "d", entries_max=3)
    assert known(dedup, ["a", "b", "c", "d"], 0) == ["b", "c", "d"]
    assert (len(dedup), dedup.evicted) == (3, 1)
    dedup.mark("b", 1)  # Now the youngest.
    dedup.mark("e", 1)
    assert known(dedup, ["b", "c", "d", "e"], 1) == ["b", "d", "e"]
    assert dedup.evicted == 2


def test_a_bound_of_one_works() -> None:
    dedup = marked("a", "b", "c", entries_max=1)
    assert known(dedup, ["a", "b", "c"], 0) == ["c"]
    assert dedup.evicted == 2


def test_what_is_over_makes_room_without_being_counted_as_evicted() -> None:
    dedup = marked("a", "b", "c", entries_max=3)
    for name in ("d", "e", "f"):
        assert dedup.check_and_mark(name, 10 * SECOND)
    assert (len(dedup), dedup.evicted) == (3, 0)
    assert known(dedup, ["d", "e", "f"], 10 * SECOND) == ["d", "e", "f"]


def test_a_key_marked_again_before_its_old_mark_was_cleared_is_not_evicted_in_its_place() -> None:
    dedup = marked("a", "b", "c", entries_max=3)
    assert dedup.check_and_mark("c", 10 * SECOND)  # Clears a and b; the old place of c is still there.
    dedup.mark("d", 10 * SECOND)
    dedup.mark("e", 11 * SECOND)
    assert known(dedup, ["c", "d", "e"], 11 * SECOND) == ["c", "d", "e"]
    assert (len(dedup), dedup.evicted) == (3, 0)


def test_a_forgotten_key_leaves_room_at_the_bound() -> None:
    dedup = marked("a", "b", "c", entries_max=3)
    dedup.forget("c")
    dedup.mark("d", 1)
    assert known(dedup, ["a", "b", "d"], 1) == ["a", "b", "d"]
    assert dedup.evicted == 0


def test_marks_clear_a_few_that_are_over_each_and_so_the_set_shrinks_in_use() -> None:
    old = keys(MANY)
    dedup = marked(*old)
    sizes = [len(dedup)]
    for name in keys(MANY, "new"):
        assert dedup.check_and_mark(name, 10 * SECOND)
        sizes.append(len(dedup))
    steps = {after - before for before, after in itertools.pairwise(sizes)}
    assert min(steps) == 1 - PLACES_PER_MARK
    assert sizes[MANY // 2] == MANY // 2
    assert sizes[-1] == MANY
    assert known(dedup, old, 10 * SECOND) == []


def test_over_and_not_yet_cleared_is_not_known() -> None:
    # The answer is exact however much is left to clear.
    old = keys(MANY)
    dedup = marked(*old)
    assert all(dedup.check_and_mark(name, 10 * SECOND) for name in reversed(old))
    assert known(dedup, old, 10 * SECOND) == old
    assert len(dedup) == MANY
    while dedup.expire(20 * SECOND - 1):
        pass
    assert known(dedup, old, 20 * SECOND - 1) == old


def test_expire_works_in_bounded_portions_and_says_how_many_it_cleared() -> None:
    dedup = marked(*keys(PLACES_PER_EXPIRE * 2 + 5))
    assert dedup.expire(10 * SECOND - 1) == 0
    portions = [dedup.expire(10 * SECOND) for _ in range(4)]
    assert portions == [PLACES_PER_EXPIRE, PLACES_PER_EXPIRE, 5, 0]
    assert len(dedup) == 0
    assert marked("a", "b", "c").expire(10 * SECOND, 2) == 2


def test_expire_moves_time_on() -> None:
    dedup = marked("a", "b")
    dedup.expire(10 * SECOND, 1)
    assert len(dedup) == 1
    assert not dedup.seen("b", 0)


def test_keys_forgotten_late_and_marked_again_keep_their_new_window() -> None:
    # Their first places are deep in the order, where they cannot be taken out.
    names = keys(MANY)
    dedup = marked(*names)
    again = names[2_000:12_000:7]
    for name in again:
        assert dedup.forget(name)
    for name in again[::2]:
        assert dedup.check_and_mark(name, 5 * SECOND)
        assert dedup.forget(name)
        assert dedup.check_and_mark(name, 6 * SECOND)
    while dedup.expire(10 * SECOND):
        pass
    assert known(dedup, names, 10 * SECOND) == again[::2]
    assert len(dedup) == len(again[::2])
    while dedup.expire(16 * SECOND):
        pass
    assert len(dedup) == 0
    assert dedup.evicted == 0


def test_memory_is_bounded_even_if_every_mark_is_taken_back_late() -> None:
    dedup = Deduplicator(10.0, entries_max=3_000)
    recent: list[str] = []
    tracemalloc.start()
    try:
        for number in range(20_000):
            name = f"{number:020}"
            assert dedup.check_and_mark(name, number)
            recent.append(name)
            if len(recent) > 1_500:  # Further back than the youngest places.
                dedup.forget(recent.pop(0))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(dedup) <= 1_501
    assert known(dedup, recent[-1_000:], 20_000) == recent[-1_000:]
    assert taken < 3_000 * 400


def test_memory_is_given_back_after_a_burst() -> None:
    tracemalloc.start()
    try:
        dedup = Deduplicator(10.0)
        for number in range(40_000):
            dedup.mark(f"{number:020}", 0)
        full = tracemalloc.get_traced_memory()[0]
        # A few keys stay known, so that no part can be dropped as a whole.
        for number in range(200):
            dedup.mark(f"late{number}", 9 * SECOND)
        while dedup.expire(10 * SECOND):
            pass
        few = tracemalloc.get_traced_memory()[0]
        while dedup.expire(19 * SECOND):
            pass
        empty = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert full > 40_000 * 100
    assert few < full / 10
    assert empty < 40_000


def test_an_idle_set_is_small() -> None:
    tracemalloc.start()
    try:
        sets = [Deduplicator(10.0) for _ in range(100)]
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken / len(sets) < 2_000


def test_the_garbage_collector_has_next_to_nothing_to_look_at() -> None:
    # A million keys must not make each full collection long.
    gc.collect()
    before = len(gc.get_objects())
    dedup = marked(*keys(MANY))
    gc.collect()
    assert len(gc.get_objects()) - before < 300
    assert len(dedup) == MANY


def test_no_dict_holds_so_much_that_its_growth_is_a_pause() -> None:
    dedup = marked(*keys(MANY))
    sizes = [len(part.ends) for part in dedup._parts]
    assert len(sizes) == 64
    assert max(sizes) < 2 * MANY / 64
    assert max(len(chunk) for chunk in dedup._places._chunks) < 1_000
    assert len(marked(*keys(100))._parts) == 1


@pytest.mark.parametrize("window_s", [0.0, -1.0, math.nan, math.inf, DEDUP_WINDOW_S_MAX + 1, 1e-10])
def test_a_window_that_is_no_sensible_time_is_refused(window_s: float) -> None:
    with pytest.raises(ConfigInvalid, match="window"):
        Deduplicator(window_s)


@pytest.mark.parametrize("entries_max", [0, -1])
def test_a_set_without_room_is_refused(entries_max: int) -> None:
    with pytest.raises(ConfigInvalid, match="entries_max"):
        Deduplicator(10.0, entries_max)


def test_the_longest_window_does_not_overflow() -> None:
    now_ns = 2**62
    dedup = marked("a", window_s=DEDUP_WINDOW_S_MAX, now_ns=now_ns)
    assert dedup.seen("a", now_ns + int(DEDUP_WINDOW_S_MAX) * SECOND - 1)
    assert not dedup.seen("a", now_ns + int(DEDUP_WINDOW_S_MAX) * SECOND)


def test_each_key_is_fresh_to_one_of_many_threads() -> None:
    dedup = Deduplicator(3600.0)
    names = keys(6_000)
    won: list[list[str]] = []

    def race() -> None:
        won.append([name for name in names if dedup.check_and_mark(name, 0)])

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for one in won for name in one) == sorted(names)
    assert len(dedup) == len(names)


class Litter:
    """Garbage that only the cycle collector finds, and that acts when it is found."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.itself = self
        self.act = act

    def __del__(self) -> None:
        self.act()


def test_a_finalizer_that_uses_the_set_in_the_middle_of_a_mark_breaks_nothing() -> None:
    # Before Python 3.12 the collector may start wherever a list or a dict is made.
    chance = random.Random(7)
    dedup = Deduplicator(3_000 / 1e9, entries_max=50_000)
    marks: dict[str, int] = {}
    now_ns = 0

    def act() -> None:
        gc.disable()
        for number in range(chance.choice([1, 1, 1, 900])):
            dedup.check_and_mark(f"inner{number}", now_ns)
        gc.enable()

    threshold = gc.get_threshold()
    try:
        for _ in range(6_000):
            now_ns += chance.randrange(3)
            key = f"k{chance.randrange(8_000)}"
            fresh = key not in marks or now_ns >= marks[key] + 3_000
            Litter(act)
            gc.set_threshold(chance.randrange(1, 4))
            assert dedup.check_and_mark(key, now_ns) == fresh
            gc.set_threshold(0)
            if fresh:
                marks[key] = now_ns
    finally:
        gc.set_threshold(*threshold)
        gc.enable()
        gc.collect()
    expected = {key for key, at_ns in marks.items() if now_ns < at_ns + 3_000}
    assert {key for key in marks if dedup.seen(key, now_ns)} == expected
    while dedup.expire(now_ns + 3_000):
        pass
    assert len(dedup) == 0
