"""What a store held is gone with it: in compiled code the cycle collector does not see messages."""

import gc
from collections.abc import Callable

import pytest

from tests.crash.power import StillTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import Declare, Drop, Send
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.entity import QUEUE, Entity
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.store import ClaimRequest


def entities() -> int:
    gc.collect()
    return sum(type(each) is Entity for each in gc.get_objects())


def a_send(queue: str) -> Send:
    message = Message.new(queue, "x")
    if queue == "sessions":
        message = message.with_fields({"session_id": "s"})
    return send_of(message, queue)


def used() -> EmbeddedStore:
    """With messages that wait, are locked, and belong to a session that is held."""
    store = EmbeddedStore(MemoryJournal(), SYSTEM_CLOCK, StillTimers())
    store.apply([Declare("plain", QUEUE, {})]).wait()
    store.apply([Declare("sessions", QUEUE, {"requires_session": True})]).wait()
    for queue in ("plain", "sessions"):
        store.apply([a_send(queue) for _ in range(3)]).wait()
    store.claim(ClaimRequest("plain", 1)).wait()
    store.accept("sessions", None, "").wait()
    return store


def drop_all(store: EmbeddedStore) -> None:
    for queue in ("plain", "sessions"):
        store.apply([Drop(queue)]).wait()


@pytest.mark.parametrize("before_closing", [lambda _: None, drop_all], ids=["closed", "deleted and closed"])
def test_nothing_outlives_its_store(before_closing: Callable[[EmbeddedStore], None]) -> None:
    before = entities()
    store = used()
    assert entities() == before + 2
    before_closing(store)
    store.close()
    del store
    assert entities() == before


def test_a_deleted_entity_is_gone_while_its_store_goes_on() -> None:
    before = entities()
    store = used()
    drop_all(store)
    store._state.due._sweep()  # Deadlines of removed messages stay until they are the majority.
    assert entities() == before
    store.close()
