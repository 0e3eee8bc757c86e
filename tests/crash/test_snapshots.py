"""A crash while a snapshot is being taken: what campaigns have found there, each in the few steps that it takes."""

import pytest

from tests.crash.ledger import body_of
from tests.crash.power import MACHINES, Machine
from unibus.core.lifecycle.commands import DEAD_LETTER, Declare, Drop, Send, Settle
from unibus.core.lifecycle.state.changes import MessageRef
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.core.lifecycle.state.states import ACTIVE
from unibus.errors import StoreFailed
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.seam.store import ClaimRequest
from unibus.testing.power import Fault

SECOND = 1_000_000_000


pytestmark = pytest.mark.parametrize("kind", MACHINES)


def machine_of(kind: str, every: int, piece: int = 1, memory_mb: float = 16.0) -> Machine:
    machine = MACHINES[kind]("snapshots")
    machine._snapshot_every, machine._piece, machine._memory_mb = every, piece, memory_mb
    machine._history_bytes = 10**9
    return machine


def send(name: str, entity: str = "q") -> Send:
    return Send(entity, MessageRef(name, len(body_of(name))), body_of(name), 20)


def restarted(machine: Machine, store: EmbeddedStore) -> EmbeddedStore:
    machine.disk.kill()
    machine.release(store)
    return machine.start()


def held(store: EmbeddedStore, entity: str = "q") -> list[str]:
    """The messages of a queue, whose counts and bodies are right."""
    seen = store.peek(entity, 0, 10_000).wait(10)
    (info,) = [each for each in store.entities().wait() if each.name == entity]
    assert info.active + info.locked + info.scheduled + info.deferred == len(seen)
    assert [each.data for each in seen] == [body_of(each.who.message_id) for each in seen]
    return [each.who.message_id for each in seen]


def test_an_entity_that_is_newer_than_the_last_whole_snapshot(kind: str) -> None:
    machine = machine_of(kind, every=10)
    store = machine.start()
    names = [f"m{number}" for number in range(12)]
    store.apply([Declare("q", QUEUE, {})]).wait(10)
    store.apply([send(name) for name in names]).wait(10)  # With the first piece.
    assert store.health().snapshot_seq == 0
    store = restarted(machine, store)
    assert held(store) == names
    assert [each.who.message_id for each in store.claim(ClaimRequest("q", 20)).wait(10)] == names
    store.close()


def test_a_message_that_dies_before_its_piece_is_written_is_in_the_dead_letters(kind: str) -> None:
    machine = machine_of(kind, every=10)
    store = machine.start()
    store.apply([Declare("q", QUEUE, {})]).wait(10)
    store.apply([Declare("other", QUEUE, {})]).wait(10)
    store.apply([send(f"m{number}") for number in range(12)]).wait(10)
    begun_at = store.health().last_seq
    last = store.claim(ClaimRequest("q", 12)).wait(10)[-1]
    store.apply([Settle(DEAD_LETTER, "q", last.sequence, last.token)]).wait(10)
    number = 0
    while store.health().snapshot_seq != begun_at:
        number += 1
        store.apply([send(f"o{number}", "other")]).wait(10)
    store = restarted(machine, store)
    assert held(store, "q/$DeadLetterQueue") == ["m11"]
    assert held(store) == [f"m{number}" for number in range(11)]
    store.close()


def test_what_comes_due_in_a_call_that_writes_nothing_is_written_before_a_snapshot_of_it(kind: str) -> None:
    machine = machine_of(kind, every=1, piece=500)
    store = machine.start()
    store.apply([Declare("q", QUEUE, {})]).wait(10)
    later = send("later")
    later.visible_ns = store.now_ns() + SECOND
    store.apply([later]).wait(10)
    pending = store.apply([send("now")])
    machine.clock.advance(2, settle=False)
    store.entities().wait(10)
    pending.wait(10)
    store = restarted(machine, store)
    events, _ = store.history.events_after(0)
    assert [event.kind for event in events] == ["declared", "scheduled", "sent", "activated"]
    assert [(each.sequence, each.state) for each in store.peek("q", 0, 10).wait(10)] == [(2, ACTIVE), (3, ACTIVE)]
    store.close()


def test_history_names_a_queue_that_no_snapshot_has_seen(kind: str) -> None:
    machine = machine_of(kind, every=10**6)
    store = machine.start()
    store.apply([Declare("brief", QUEUE, {})]).wait(10)
    store.apply([send("m", "brief")]).wait(10)
    store.apply([Drop("brief")]).wait(10)
    assert {event.channel for event in store.history.events_after(0)[0]} == {"brief"}
    store = restarted(machine, store)
    assert {event.channel for event in store.history.events_after(0)[0]} == {"brief"}
    store.close()


def test_a_message_that_cannot_be_read_for_a_snapshot_stops_the_store_and_stays(kind: str) -> None:
    names = [f"m{number}" for number in range(40)]
    machine = machine_of(kind, every=1, piece=500, memory_mb=0.0)
    store = machine.start()
    store.apply([Declare("q", QUEUE, {})]).wait(10)
    store.apply([send(name) for name in names]).wait(10)
    store.close()
    store = machine.start()
    machine.disk.fail_at(1, Fault.READ, lasting=True)
    pending = store.claim(ClaimRequest("q", 40))
    with pytest.raises(StoreFailed):
        pending.wait(10)
    assert not store.health().ok
    machine.disk.heal()
    machine.release(store)
    store = machine.start()
    assert held(store) == names
    store = restarted(machine, store)
    assert held(store) == names
    store.close()
