"""What a check finds when the indexes of a state are wrong: each of them is broken by hand."""

from collections.abc import Callable

import pytest

from unibus.clock import SYSTEM_CLOCK
from unibus.core.lifecycle.invariants import violations
from unibus.core.lifecycle.state.entity import Entity
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import Rig


def break_nothing(state: StoreState, entity: Entity) -> None:
    """The state as it is."""


def forget_a_token(state: StoreState, entity: Entity) -> None:
    assert state.tokens is not None
    state.tokens.popitem()


def keep_an_old_token(state: StoreState, entity: Entity) -> None:
    assert state.tokens is not None
    state.tokens[b"old"] = next(iter(entity.entries.values()))


def lose_a_sequence(state: StoreState, entity: Entity) -> None:
    assert entity.order is not None
    entity.order.sequences.pop()


def mix_the_order(state: StoreState, entity: Entity) -> None:
    assert entity.order is not None
    entity.order.sequences.reverse()


def lose_a_sequence_of_a_session(state: StoreState, entity: Entity) -> None:
    order = entity.sessions["s"].order
    assert order is not None
    order.sequences.pop()


def lose_a_message_of_a_session(state: StoreState, entity: Entity) -> None:
    entity.sessions["s"].entries.popitem()


def lose_a_session(state: StoreState, entity: Entity) -> None:
    entity.listed_sessions().update("s", False)


def mix_the_messages(state: StoreState, entity: Entity) -> None:
    entity.entries = dict(reversed(entity.entries.items()))


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        (break_nothing, ""),
        (forget_a_token, "lock token"),
        (keep_an_old_token, "lock token"),
        (lose_a_sequence, "would not see"),
        (mix_the_order, "would not see"),
        (lose_a_sequence_of_a_session, "session 's'"),
        (lose_a_message_of_a_session, "session 's'"),
        (lose_a_session, "list of the sessions"),
        (mix_the_messages, "another order"),
    ],
)
def test_a_broken_index_is_found(harm: Callable[[StoreState, Entity], None], word: str) -> None:
    with VirtualClock() as clock:
        store = EmbeddedStore(MemoryJournal(), clock, clock.timers(lambda: True) or SYSTEM_CLOCK.timers(lambda: True))
        rig = Rig(store, clock)
        rig.queue("q", requires_session=True)
        rig.fill("q", range(5), session_id="s")
        assert store._state.by_token(b"none") is None  # Makes the index, which is kept from here on.
        rig.claim_in(rig.accept("q", "s"), 2)
        rig.peek("q")
        store.peek("q", 0, 9, "s").wait()
        assert violations(store._state) == []
        entity = store._state.find("q")
        assert entity is not None
        harm(store._state, entity)
        found = violations(store._state)
        assert bool(found) == bool(word)
        assert word in " ".join(found)
        store._state.release()
