"""The ready queue against a sorted list, with messages that are removed, requeued, and queued twice."""

import random

import pytest

from unibus.core.lifecycle.state.ready_queue import ReadyItem, ReadyQueue
from unibus.core.lifecycle.state.states import ACTIVE, GONE, LOCKED


@pytest.mark.parametrize("by_priority", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_it_delivers_in_the_order_of_a_sorted_list(by_priority: bool, seed: int) -> None:
    chance = random.Random(seed)
    waiting = ReadyQueue(by_priority)
    held: list[ReadyItem] = []
    locked: list[ReadyItem] = []
    for sequence in range(1, 400):
        placed = ReadyItem(sequence, chance.choice([0, 50, 50, 200]))
        waiting.push(placed)
        held.append(placed)
        for _ in range(chance.randrange(3)):
            expected = min(held, key=lambda each: (each.priority * by_priority, each.sequence), default=None)
            assert waiting.first() is expected
            assert waiting.pop() is expected
            if expected is not None:
                held.remove(expected)
                locked.append(expected)
                expected.state = LOCKED
        if locked and chance.random() < 0.4:
            back = locked.pop(chance.randrange(len(locked)))
            back.state = ACTIVE
            waiting.reinsert(back)
            held.append(back)
        if held and chance.random() < 0.2:
            held.pop(chance.randrange(len(held))).state = GONE  # Expired where it stood.
    held.sort(key=lambda each: (each.priority * by_priority, each.sequence))
    for expected in held:
        found = waiting.pop()
        assert found is expected
        expected.state = LOCKED
    assert waiting.pop() is None
    assert waiting.first() is None


def test_one_that_stands_there_twice_is_handed_out_once() -> None:
    waiting = ReadyQueue(True)
    placed, other = ReadyItem(1, 50), ReadyItem(2, 50)
    waiting.push(placed)
    waiting.push(other)
    waiting.reinsert(placed)
    waiting.reinsert(placed)
    assert waiting.pop() is placed
    placed.state = LOCKED
    assert waiting.pop() is other
    other.state = GONE
    assert waiting.pop() is None
    assert waiting.held() == 0


def test_stale_messages_precede_nothing() -> None:
    waiting = ReadyQueue(True)
    gone, urgent = ReadyItem(1, 0), ReadyItem(2, 10)
    waiting.push(gone)
    gone.state = GONE
    assert waiting.count_before(50, 1, 9) == 0
    waiting.push(urgent)
    waiting.reinsert(urgent)
    assert waiting.count_before(50, 1, 9) == 1
    assert waiting.count_before(10, 2, 9) == 0


def test_what_came_back_stands_before_what_came_later() -> None:
    waiting = ReadyQueue(True)
    urgent, early, late = ReadyItem(3, 0), ReadyItem(1, 50), ReadyItem(2, 50)
    waiting.push(late)
    waiting.push(urgent)
    waiting.reinsert(early)
    for expected in (urgent, early, late):
        assert waiting.pop() is expected
        expected.state = LOCKED
