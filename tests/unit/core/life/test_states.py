"""The table of the life cycle against what playing a change does, for every state and every change."""

import pytest

from unibus.core.lifecycle.state.apply import replay
from unibus.core.lifecycle.state.changes import (
    Activated,
    Cancelled,
    Change,
    Completed,
    DeadLettered,
    Declared,
    Deferred,
    Delivered,
    Expired,
    MessageRef,
    Moved,
    Purged,
    Renewed,
    Returned,
    Routed,
    Sent,
)
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.core.lifecycle.state.state import StoreState
from unibus.core.lifecycle.state.states import ACTIVE, DEFERRED, GONE, LOCKED, SCHEDULED, STATE_NAMES, TRANSITIONS, may
from unibus.errors import StoreDamaged

WHO = MessageRef("m", 1)
TOKEN = b"t" * 16
SENT = Sent(1, 1, 1, WHO, 50, 0, 0, None, b"x")
LATER = Sent(1, 1, 1, WHO, 50, 0, 99, None, b"x")
DELIVERED = Delivered(2, 1, 1, WHO, 1, TOKEN, 50)
DEFER = Deferred(3, 1, 1, WHO, 1)

INTO: dict[int, list[Change]] = {
    SCHEDULED: [LATER],
    ACTIVE: [SENT],
    LOCKED: [SENT, DELIVERED],
    DEFERRED: [SENT, DELIVERED, DEFER],
}
CHANGES: dict[str, list[Change]] = {
    "delivered": [DELIVERED],
    "renewed": [Renewed(4, 1, 1, 90)],
    "returned": [Returned(4, 1, 1, WHO, 1, "abandoned"), Returned(4, 1, 1, WHO, 1, "abandoned", 99)],
    "deferred": [DEFER],
    "activated": [Activated(4, 1, 1, WHO, 2), Activated(4, 1, 1, WHO, 1)],
    "completed": [Completed(4, 1, 1, WHO, 1, 1, 2)],
    "cancelled": [Cancelled(4, 1, 1, WHO)],
    "expired": [Expired(4, 1, 1, WHO, 1, 1, 2)],
    "dead_lettered": [DeadLettered(4, 1, 1, WHO, 1, 1, 2, "why")],
    "routed": [Routed(4, 1, 1, WHO)],
    "purged": [Purged(4, 1, 1, WHO, "by hand")],
    "moved": [Moved(4, 1, 1, WHO, 1, 1, "other", "retry")],
}


def book_in(state: int) -> StoreState:
    book = StoreState(1_000)
    replay(book, Declared(1, 1, 0, "q", QUEUE, {}))
    for change in INTO[state]:
        replay(book, change)
    assert [entry.state for entry in book.entities[1].entries.values()] == [state]
    return book


def test_every_change_of_the_table_is_tried_here() -> None:
    assert CHANGES.keys() == TRANSITIONS.keys()
    assert STATE_NAMES.keys() == {*INTO, GONE}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("state", INTO)
def test_a_change_finds_and_leaves_a_message_as_the_table_says(name: str, state: int) -> None:
    for change in CHANGES[name]:
        book = book_in(state)
        entity = book.entities[1]
        if not may(name, state):
            with pytest.raises(StoreDamaged, match=STATE_NAMES[state]):
                replay(book, change)
            continue
        replay(book, change)
        [left] = [entry.state for entry in entity.entries.values()] or [GONE]
        assert left in TRANSITIONS[name][1]
        counts = {ACTIVE: entity.active, LOCKED: entity.locked, SCHEDULED: entity.scheduled, DEFERRED: entity.deferred}
        assert counts == {each: int(each == left) for each in counts}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_message_that_is_not_there_is_damage(name: str) -> None:
    book = StoreState(1_000)
    replay(book, Declared(1, 1, 0, "q", QUEUE, {}))
    with pytest.raises(StoreDamaged):
        replay(book, CHANGES[name][0])


def test_a_deferred_message_that_is_returned_is_deferred_again() -> None:
    book = book_in(DEFERRED)
    for change in (DELIVERED, *CHANGES["returned"][:1]):
        replay(book, change)
    assert book.entities[1].entries[1].state == DEFERRED
