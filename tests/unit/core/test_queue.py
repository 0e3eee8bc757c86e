"""The strict priority queue: exact order, exact bound, from any thread."""

import gc
import random
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Iterator

import pytest

from tests.unit.interrupts import interrupted
from unibus.core.atomic import COMPILED
from unibus.core.envelope.message import Message
from unibus.core.envelope.priority import Priority
from unibus.core.flow.queue import PriorityQueue
from unibus.errors import PriorityInvalid, QueueFull, UsageError

GUARD_S = 10.0


@pytest.fixture
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def filled(*items: tuple[str, int], max_size: int = 0) -> PriorityQueue[str]:
    queue: PriorityQueue[str] = PriorityQueue(max_size)
    for item, priority in items:
        queue.push_with_priority(item, priority)
    return queue


def test_the_seeds_ordering_test() -> None:
    queue = filled(("low", 100), ("high", 0), ("medium", 50), max_size=100)
    assert [queue.pop(), queue.pop(), queue.pop(), queue.pop()] == ["high", "medium", "low", None]


def test_order_is_first_in_first_out_inside_a_level() -> None:
    queue = filled(("a", 5), ("b", 5), ("c", 4), ("d", 5))
    assert queue.drain() == ["c", "a", "b", "d"]


def test_critical_overtakes_high() -> None:
    # No buckets of 32.
    queue = filled(("high", Priority.HIGH), ("critical", Priority.CRITICAL))
    assert queue.drain() == ["critical", "high"]


def test_all_256_levels_are_exact() -> None:
    queue: PriorityQueue[tuple[int, int]] = PriorityQueue()
    for turn in range(3):
        for level in (*range(255, -1, -2), *range(0, 256, 2)):
            queue.push_with_priority((level, turn), level)
    assert queue.drain() == sorted((level, turn) for level in range(256) for turn in range(3))


def test_pushes_and_pops_may_alternate() -> None:
    queue = filled(("a", 50), ("b", 75))
    assert queue.pop() == "a"
    queue.push_with_priority("c", 60)
    queue.push_with_priority("d", 80)
    assert queue.pop() == "c"
    queue.push_with_priority("e", 75)
    assert queue.drain() == ["b", "e", "d"]
    queue.push_with_priority("f", 1)
    assert queue.pop() == "f"
    assert queue.is_empty()


def test_a_message_is_pushed_with_its_own_priority() -> None:
    queue: PriorityQueue[Message] = PriorityQueue()
    low, high = Message.new("c", 1, Priority.LOW), Message.new("c", 2, Priority.HIGH)
    queue.push(low)
    queue.push(high)
    assert queue.pop() is high
    assert queue.pop() is low


def test_only_messages_know_their_priority() -> None:
    queue: PriorityQueue[object] = PriorityQueue()
    with pytest.raises(UsageError) as caught:
        queue.push("text")
    assert caught.value.hint
    assert len(queue) == 0


def test_a_full_queue_gives_the_item_back() -> None:
    queue: PriorityQueue[object] = PriorityQueue(1)
    item = object()
    queue.push_with_priority("first", 50)
    with pytest.raises(QueueFull) as caught:
        queue.push_with_priority(item, 0)
    assert caught.value.item is item
    assert caught.value.retryable
    assert len(queue) == 1
    assert queue.pop() == "first"
    queue.push_with_priority(item, 0)
    assert queue.pop() is item


def test_zero_is_unbounded_and_negative_is_refused() -> None:
    queue = filled(*[(str(number), 50) for number in range(3_000)], max_size=0)
    assert len(queue) == 3_000
    with pytest.raises(UsageError):
        PriorityQueue(-1)


@pytest.mark.parametrize("priority", [-1, 256, 10**30, 1.5, "high", None])
def test_a_priority_that_is_none_is_refused(priority: object) -> None:
    queue = filled(("a", 50))
    with pytest.raises((PriorityInvalid, TypeError)):
        queue.push_with_priority("b", priority)  # type: ignore[arg-type]
    assert len(queue) == 1
    assert queue.drain() == ["a"]


def test_none_is_an_item_like_any_other() -> None:
    queue: PriorityQueue[object] = PriorityQueue()
    queue.push_with_priority(None, 1)
    queue.push_with_priority("x", 2)
    assert len(queue) == 2
    assert queue.drain() == [None, "x"]


def test_items_are_never_compared() -> None:
    class Incomparable:
        def __lt__(self, other: object) -> bool:
            raise AssertionError("compared")

        __eq__ = __gt__ = __le__ = __ge__ = __lt__  # type: ignore[assignment]
        __hash__ = object.__hash__

    queue: PriorityQueue[object] = PriorityQueue()
    items = [Incomparable() for _ in range(4)]
    for item in items:
        queue.push_with_priority(item, 5)
    taken = [queue.pop() for _ in range(4)]
    for item in taken:
        queue.restore(item, 5, 7)  # Equal sequences, as of different channels: in the order of return.
    assert all(got is item for got, item in zip(queue.drain(), items, strict=True))


# Requeued items


def test_what_comes_back_keeps_its_place() -> None:
    queue = filled(("a", 50), ("b", 50), ("c", 50), ("d", 25))
    assert [queue.pop(), queue.pop(), queue.pop()] == ["d", "a", "b"]
    queue.push_with_priority("e", 50)
    queue.restore("b", 50, 2)
    queue.restore("a", 50, 1)
    assert len(queue) == 4
    assert queue.drain() == ["a", "b", "c", "e"]


def test_what_comes_back_does_not_overtake_the_more_urgent() -> None:
    queue = filled(("a", 50))
    queue.pop()
    queue.push_with_priority("urgent", 10)
    queue.restore("a", 50, 1)
    assert queue.drain() == ["urgent", "a"]


def test_a_place_is_compared_with_what_came_back() -> None:
    queue = filled(("a", 50), ("b", 50))
    assert not queue.has_returned_before(50, 9)  # Those that wait were never taken.
    queue.restore("c", 50, 4)
    queue.restore("d", 60, 1)
    assert queue.has_returned_before(50, 5)
    assert queue.has_returned_before(51, 0)
    assert not queue.has_returned_before(50, 4)
    assert not queue.has_returned_before(25, 9)


def test_what_comes_back_is_never_refused() -> None:
    queue = filled(("a", 50), max_size=1)
    queue.pop()
    queue.push_with_priority("b", 50)
    queue.restore("a", 50, 1)
    assert len(queue) == 2
    with pytest.raises(QueueFull):
        queue.push_with_priority("c", 0)


# What is pushed out


def test_evict_takes_the_oldest_of_the_least_urgent() -> None:
    queue = filled(("low1", 75), ("high", 25), ("low2", 75), ("normal", 50))
    assert queue.evict(50) == "low1"
    assert queue.evict(50) == "low2"
    assert queue.evict(50) == "normal"
    assert queue.evict(50) is None  # Never something more urgent than the newcomer.
    assert queue.evict(25) == "high"
    assert queue.evict(0) is None
    assert len(queue) == 0
    assert queue.pop() is None


def test_evict_knows_what_came_back() -> None:
    # A requeued item is the oldest of its level.
    queue = filled(("a", 75), ("b", 75), ("c", 75))
    assert [queue.pop(), queue.pop()] == ["a", "b"]
    queue.restore("b", 75, 2)
    queue.restore("a", 75, 1)
    assert queue.evict(75) == "a"
    assert queue.evict(76) is None
    assert queue.drain() == ["b", "c"]


def test_evict_prefers_the_less_urgent_over_the_older() -> None:
    queue = filled(("a", 50), ("b", 75))
    queue.pop()
    queue.restore("a", 50, 1)
    assert queue.evict(0) == "b"
    assert queue.evict(0) == "a"


def test_after_an_eviction_the_queue_goes_on_as_before() -> None:
    queue = filled(("a", 75))
    assert queue.evict(0) == "a"
    queue.push_with_priority("b", 80)
    queue.push_with_priority("c", 75)
    assert queue.drain() == ["c", "b"]


def test_count_from_counts_what_is_not_more_urgent() -> None:
    queue = filled(("a", 25), ("b", 50), ("c", 75), ("d", 75))
    queue.pop()
    queue.restore("a", 25, 1)
    assert [queue.count_from(level) for level in (0, 25, 26, 50, 75, 76)] == [4, 4, 3, 3, 2, 0]


# Memory


def test_nothing_that_left_is_held() -> None:
    class Thing:
        pass

    queue: PriorityQueue[Thing] = PriorityQueue()
    references = []
    for number in range(20):
        thing = Thing()
        references.append(weakref.ref(thing))
        queue.push_with_priority(thing, number % 3)
    del thing
    queue.evict(0)
    popped = queue.pop()
    assert popped is not None
    queue.restore(popped, 0, 1)
    del popped
    queue.drain()
    gc.collect()
    assert [reference() for reference in references if reference() is not None] == []


def test_a_burst_gives_its_memory_back() -> None:
    queue: PriorityQueue[int] = PriorityQueue()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20_000):
            queue.push_with_priority(1, 50)
        peak = tracemalloc.get_traced_memory()[0] - before
        while queue.pop() is not None:
            pass
        after = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert peak > 140_000
    assert after < 20_000


# Threads


def test_the_bound_holds_under_many_producers(eager_switching: None) -> None:
    # A look and a push in two steps broke this in 4 of 300 rounds.
    rounds, producers, bound = 400, 6, 8
    queue: PriorityQueue[int] = PriorityQueue(bound)
    begin, end = threading.Barrier(producers + 1), threading.Barrier(producers + 1)
    over: list[int] = []
    accepted = [0] * producers
    back: list[object] = []

    def produce(number: int) -> None:
        for step in range(rounds):
            begin.wait(GUARD_S)
            for turn in range(3):
                item = (step, number, turn)
                try:
                    queue.push_with_priority(item, (number + turn) % 4)  # type: ignore[arg-type]
                    accepted[number] += 1
                except QueueFull as error:
                    if error.item is not item:
                        back.append(error.item)
                if len(queue) > bound:
                    over.append(len(queue))
            end.wait(GUARD_S)

    threads = [threading.Thread(target=produce, args=(number,), daemon=True) for number in range(producers)]
    for thread in threads:
        thread.start()
    for _ in range(rounds):
        begin.wait(GUARD_S)
        end.wait(GUARD_S)
        assert len(queue) == bound
        assert len(set(queue.drain())) == bound
    for thread in threads:
        thread.join(GUARD_S)
    assert over == []
    assert back == []
    assert sum(accepted) == rounds * bound


def test_many_producers_and_consumers_lose_and_double_nothing(eager_switching: None) -> None:
    queue: PriorityQueue[tuple[int, int]] = PriorityQueue()
    taken: list[list[tuple[int, int]]] = [[] for _ in range(3)]
    producing = threading.Event()
    producing.set()

    def produce(number: int) -> None:
        for step in range(1_000):
            queue.push_with_priority((number, step), step % 5)

    def consume(number: int) -> None:
        returned: set[tuple[int, int]] = set()
        while True:
            all_pushed = not producing.is_set()  # Before the look: nothing can come after it then.
            item = queue.pop()
            if item is None:
                if all_pushed:
                    return
            elif item[1] % 97 == 0 and item not in returned:
                returned.add(item)
                queue.restore(item, item[1] % 5, item[1])
            else:
                taken[number].append(item)

    consumers = [threading.Thread(target=consume, args=(number,), daemon=True) for number in range(3)]
    producers = [threading.Thread(target=produce, args=(number,), daemon=True) for number in range(3)]
    for thread in consumers + producers:
        thread.start()
    for thread in producers:
        thread.join(GUARD_S)
    producing.clear()
    for thread in consumers:
        thread.join(GUARD_S)
    everything = sorted(item for part in taken for item in part)
    assert everything == [(number, step) for number in range(3) for step in range(1_000)]
    assert len(queue) == 0


@pytest.mark.parametrize("allocations", range(1, 16))
def test_a_finalizer_that_pushes_does_not_break_the_bound(allocations: int) -> None:
    # The second rule of core.atomic: an allocation may start the collector in the middle of a push, and
    # that may run any finalizer. The parameter moves the moment through the whole push.
    class Pushes:
        def __init__(self, queue: PriorityQueue[str]) -> None:
            self.queue = queue
            self.circle = self

        def __del__(self) -> None:
            try:
                self.queue.push_with_priority("finalizer", 5)
                accepted.append("finalizer")
            except QueueFull:
                pass

    queue = filled(*[("x", 200)] * 7, max_size=8)
    accepted: list[str] = []
    thresholds = gc.get_threshold()
    gc.collect()  # So that the next collection begins with nothing but what comes now.
    gc.disable()
    try:
        Pushes(queue)
        gc.set_threshold(allocations, 1_000, 1_000)
        gc.enable()
        try:
            queue.push_with_priority("mine", 100)  # A level that has to be made first.
            gc.disable()
            accepted.append("mine")
        except QueueFull:
            gc.disable()
        assert len(queue) == 7 + len(accepted) <= 8
        assert len(queue.drain()) == 7 + len(accepted)
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()


def test_items_are_in_the_order_of_pop_and_stay() -> None:
    rng = random.Random(7)
    for _ in range(200):
        queue: PriorityQueue[tuple[int, int]] = PriorityQueue()
        for sequence in range(rng.randrange(30)):
            priority = rng.choice([0, 25, 50, 50, 100])
            if rng.random() < 0.4:
                queue.restore((priority, sequence), priority, sequence)
            else:
                queue.append((priority, sequence), priority)
            if rng.random() < 0.2:
                queue.pop()
        read = queue.items()
        assert (len(read), queue.items()) == (len(queue), read)
        assert queue.drain() == read


def of_two_origins(chance: random.Random) -> tuple[PriorityQueue[object], list[object]]:
    """A queue with requeued and waiting items on several levels, and its items in the order of `pop`."""
    queue: PriorityQueue[object] = PriorityQueue()
    for _ in range(chance.randrange(1, 30)):
        queue.push_with_priority(object(), chance.choice((0, 50, 75)))
    popped = [(queue.pop(), 0, sequence) for sequence in range(chance.randrange(3))]
    for item, priority, sequence in popped:
        if item is not None:
            queue.restore(item, priority, sequence)
    return queue, queue.items()


def test_move_takes_the_chosen_items_and_leaves_the_others_at_their_places() -> None:
    chance = random.Random(4)
    for _ in range(300):
        queue, items = of_two_origins(chance)
        chosen = [item for item in items if chance.random() < chance.choice((0.1, 0.5, 1.0))]
        into: list[object] = []
        queue.move({id(item) for item in chosen}, into)
        left = [item for item in items if item not in chosen]
        assert sorted(map(id, into)) == sorted(map(id, chosen))
        assert (queue.items(), len(queue)) == (left, len(left))
        queue.push_with_priority("last", 255)
        queue.push_with_priority("next", 60)
        urgent = [queue.pop() for _ in range(len(left) + 2)]
        assert [item for item in urgent if item not in ("last", "next")] == left
        assert (urgent[-1], queue.pop()) == ("last", None)


def test_a_moved_item_keeps_those_that_are_requeued_later_before_those_that_wait() -> None:
    queue = filled(("a", 50), ("b", 50), ("c", 50))
    first, second = queue.pop(), queue.pop()
    assert (first, second) == ("a", "b")
    queue.restore("b", 50, 2)
    into: list[str] = []
    queue.move({id(item) for item in queue.items() if item == "c"}, into)
    queue.restore("a", 50, 1)
    assert (queue.drain(), into) == (["a", "b"], ["c"])


@pytest.mark.skipif(COMPILED, reason="Ctrl-C is raised in plain Python only")
def test_an_interrupted_move_loses_nothing_and_is_finished_by_the_next() -> None:
    at = 0
    is_cut = True
    while is_cut:
        at += 1
        queue, items = of_two_origins(random.Random(at))
        chosen = {id(item) for item in items[::2]}
        into: list[object] = []
        is_cut = interrupted(lambda: queue.move(chosen, into), at)  # noqa: B023
        gc.enable()  # A method that is cut short before its `try` has not done it.
        assert {*map(id, queue.items()), *map(id, into)} == {*map(id, items)}
        assert len(queue) == len(queue.items())
        queue.move(chosen, into)
        assert ([id(item) for item in into if id(item) not in chosen], len(into)) == ([], len(chosen))
        assert queue.drain() == items[1::2]
    assert at > 20
