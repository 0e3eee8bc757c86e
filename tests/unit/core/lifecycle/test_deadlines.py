"""Deadlines: in order, never late, and correct after their item has changed or was swept."""

import random

from unibus.core.lifecycle.state.changes import MessageRef
from unibus.core.lifecycle.state.deadlines import NEVER, Deadlines
from unibus.core.lifecycle.state.entity import QUEUE, Entity, StoredMessage
from unibus.core.lifecycle.state.states import ACTIVE, DEFERRED, GONE

SECOND = 1_000_000_000
WHO = MessageRef("m", 1)


def entry(expires_ns: int) -> StoredMessage:
    made = StoredMessage(Entity(1, "q", QUEUE, {}), 1, WHO, 50, b"x")
    made.expires_ns = expires_ns
    return made


def popped(due: Deadlines, now_ns: int) -> list[int]:
    found = []
    while (item := due.pop(now_ns)) is not None:
        assert isinstance(item, StoredMessage)
        found.append(item.expires_ns)
        item.state = GONE
    return found


def test_nothing_is_due_in_an_empty_one() -> None:
    due = Deadlines()
    assert (due.next_ns(), due.pop(NEVER - 1), len(due)) == (NEVER, None, 0)


def test_what_is_due_comes_in_order_whatever_the_distance() -> None:
    chance = random.Random(1)
    times = [chance.randrange(1, 3_000 * SECOND) for _ in range(500)]
    due = Deadlines()
    for time_ns in times:
        due.add(entry(time_ns), time_ns)
    found: list[int] = []
    now_ns = 0
    while len(due):
        assert due.next_ns() > now_ns or now_ns == 0
        now_ns += 7 * SECOND
        part = popped(due, now_ns)
        assert all(now_ns - 7 * SECOND < time_ns <= now_ns for time_ns in part)
        found += part
    assert found == sorted(times)


def test_a_deadline_that_moved_waits_for_those_before_it() -> None:
    """Also where all of them are over by the time of the look: a store may have been asleep."""
    due = Deadlines()
    moved, other = entry(5 * SECOND), entry(6 * SECOND)
    due.add(moved, 5 * SECOND)
    due.add(other, 6 * SECOND)
    moved.expires_ns = 7 * SECOND
    assert popped(due, 10 * SECOND) == [6 * SECOND, 7 * SECOND]


def test_the_next_look_is_never_late() -> None:
    due = Deadlines()
    due.add(entry(1_000 * SECOND), 1_000 * SECOND)
    assert due.next_ns() <= 1_000 * SECOND
    now_ns = due.next_ns()
    assert due.pop(now_ns) is None or now_ns == 1_000 * SECOND
    assert now_ns <= due.next_ns() <= 1_000 * SECOND


def test_a_deadline_that_moved_on_is_looked_at_again() -> None:
    due = Deadlines()
    moved = entry(10 * SECOND)
    due.add(moved, 10 * SECOND)
    moved.expires_ns = 60 * SECOND
    assert due.pop(59 * SECOND) is None
    assert due.pop(60 * SECOND) is moved


def test_a_deadline_that_moved_up_counts_at_once() -> None:
    due = Deadlines()
    moved = entry(600 * SECOND)
    due.add(moved, 600 * SECOND)
    moved.expires_ns = 5 * SECOND
    due.add(moved, 5 * SECOND)
    assert due.pop(5 * SECOND) is moved
    moved.state = GONE
    assert due.pop(601 * SECOND) is None


def test_an_instant_of_the_past_is_due_now() -> None:
    due = Deadlines()
    due.add(entry(100 * SECOND), 100 * SECOND)
    assert due.pop(50 * SECOND) is None
    late = entry(3 * SECOND)
    due.add(late, 3 * SECOND)
    assert due.next_ns() <= 3 * SECOND
    assert due.pop(50 * SECOND) is late


def test_what_is_gone_is_swept_out_and_what_stays_is_not() -> None:
    due = Deadlines()
    kept = [entry(number * SECOND) for number in range(1, 101)]
    for item in kept:
        due.add(item, item.expires_ns)
    for number in range(20_000):
        item = entry((number % 900 + 1) * SECOND)
        due.add(item, item.expires_ns)
        item.state = GONE
        due.forget(item)
    assert len(due) < 10_000
    assert popped(due, 1_000 * SECOND) == [number * SECOND for number in range(1, 101)]


def test_what_had_no_deadline_during_a_sweep_has_its_own_afterwards() -> None:
    # A deferred message, or one that is locked in a session, has none; when it is active again, it has the one it had.
    due = Deadlines()
    aside = [entry(500 * SECOND), entry(3 * SECOND)]
    for item in aside:
        due.add(item, item.expires_ns)
        item.state = DEFERRED
    for _ in range(5_000):
        item = entry(700 * SECOND)
        due.add(item, item.expires_ns)
        item.state = GONE
        due.forget(item)
    assert len(due) < 5_000
    for item in aside:
        item.state = ACTIVE
        due.add(item, item.expires_ns)
    assert popped(due, 600 * SECOND) == [3 * SECOND, 500 * SECOND]
