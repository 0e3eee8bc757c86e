"""The table of states against what applying a change does, for every state and every change."""

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


def state_in(message_state: int) -> StoreState:
    state = StoreState(1_000)
    replay(state, Declared(1, 1, 0, "q", QUEUE, {}))
    for change in INTO[message_state]:
        replay(state, change)
    assert [entry.state for entry in state.entities[1].entries.values()] == [message_state]
    return state


def test_every_change_of_the_table_is_tried_here() -> None:
    assert CHANGES.keys() == TRANSITIONS.keys()
    assert STATE_NAMES.keys() == {*INTO, GONE}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("message_state", INTO)
def test_a_change_finds_and_leaves_a_message_as_the_table_says(name: str, message_state: int) -> None:
    for change in CHANGES[name]:
        state = state_in(message_state)
        entity = state.entities[1]
        if not may(name, message_state):
            with pytest.raises(StoreDamaged, match=STATE_NAMES[message_state]):
                replay(state, change)
            continue
        replay(state, change)
        [left] = [entry.state for entry in entity.entries.values()] or [GONE]
        assert left in TRANSITIONS[name][1]
        counts = {ACTIVE: entity.active, LOCKED: entity.locked, SCHEDULED: entity.scheduled, DEFERRED: entity.deferred}
        assert counts == {each: int(each == left) for each in counts}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_message_that_is_not_there_is_damage(name: str) -> None:
    state = StoreState(1_000)
    replay(state, Declared(1, 1, 0, "q", QUEUE, {}))
    with pytest.raises(StoreDamaged):
        replay(state, CHANGES[name][0])


def test_a_deferred_message_that_is_returned_is_deferred_again() -> None:
    state = state_in(DEFERRED)
    for change in (DELIVERED, *CHANGES["returned"][:1]):
        replay(state, change)
    assert state.entities[1].entries[1].state == DEFERRED
