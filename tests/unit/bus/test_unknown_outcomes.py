"""StoreFailed says that the outcome of one call is unknown: a bus on a store that works on, works on too."""

from collections.abc import Iterator

import pytest

from tests.unit.bus.probes import GUARD_S, Collector
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.errors import LockLost, QueueFull, StoreFailed
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.misbehaving_store import MisbehavingStore


@pytest.fixture
def store(virtual_clock: VirtualClock) -> Iterator[MisbehavingStore]:
    timers = virtual_clock.timers(lambda: True)
    store = MisbehavingStore(EmbeddedStore(MemoryJournal(), virtual_clock, timers))
    yield store
    store.close()
    timers.stop()


@pytest.fixture
def bus(store: MisbehavingStore, virtual_clock: VirtualClock) -> Iterator[SyncMessageBus]:
    with SyncMessageBus(store, clock=virtual_clock) as opened:
        yield opened


@pytest.mark.parametrize("taking_effect", [True, False])
def test_health_says_that_the_store_has_not_stopped(
    bus: SyncMessageBus, store: MisbehavingStore, taking_effect: bool
) -> None:
    bus.create_queue("q")
    store.fail_at(1, taking_effect=taking_effect, stops=False)
    with pytest.raises(StoreFailed):
        bus.send("q", 1)
    assert (store.health().ok, store.health().stopped, bus.health_check().status) == (True, False, "healthy")
    bus.send("q", 2)
    assert [message.body for message in bus.receive_batch("q", 5)] == ([1, 2] if taking_effect else [2])
    store.fail_at(1)
    with pytest.raises(StoreFailed):
        bus.send("q", 3)
    assert (store.health().ok, store.health().stopped, bus.health_check().status) == (False, True, "unhealthy")
    store.heal()


@pytest.mark.parametrize("taking_effect", [True, False])
def test_a_lock_is_renewed_again(
    bus: SyncMessageBus, store: MisbehavingStore, virtual_clock: VirtualClock, taking_effect: bool
) -> None:
    bus.create_queue("q", lock_duration=30)
    bus.send("q", 1)
    (message,) = bus.receive_batch("q", 1)
    with message:
        for _ in range(3):
            store.fail_at(1, taking_effect=taking_effect, stops=False)
            virtual_clock.advance(11)  # The first renewal fails; the next one comes before the lock expires.
            virtual_clock.advance(15)
        assert bus.receive_batch("q", 1, timeout=0) == []
    assert [info.locked + info.active for info in bus.entities()] == [0]


def test_a_lock_that_can_never_be_renewed_is_lost_in_the_end(
    bus: SyncMessageBus, store: MisbehavingStore, virtual_clock: VirtualClock
) -> None:
    bus.create_queue("q", lock_duration=30)
    bus.send("q", 1)
    (message,) = bus.receive_batch("q", 1)

    def work() -> None:
        with message:
            before = store.calls["apply"]
            for call in range(1, 200):
                store.fail_at(call, stops=False)
            virtual_clock.advance(31)
            assert 5 < store.calls["apply"] - before < 50
            store.heal()

    with pytest.raises(LockLost):
        work()


def test_a_claim_that_failed_is_made_again(
    bus: SyncMessageBus, store: MisbehavingStore, virtual_clock: VirtualClock
) -> None:
    """Nothing else would: no other message arrives, and none is settled."""
    bus.create_channel("c", persistent=True)
    bus.create_subscription("c", "g")
    bus.publish("c", 1)
    heard = Collector()
    for call in (1, 2, 3):
        store.fail_at(call, "claim", stops=False)
    bus.subscribe("c", heard, group="g")
    assert heard.messages == []
    virtual_clock.advance(5)
    heard.wait(1)
    assert bus.drain(GUARD_S)
    assert [message.body for message in heard.messages] == [1]


@pytest.mark.parametrize("taking_effect", [True, False])
def test_the_places_that_a_transaction_reserved_are_free_again(
    bus: SyncMessageBus, store: MisbehavingStore, taking_effect: bool
) -> None:
    bus.create_channel("c", persistent=True, max_queue_size=3)
    bus.create_subscription("c", "g")

    def publish_two() -> None:
        with bus.transaction():
            bus.publish("c", 1)
            bus.publish("c", 2)

    store.fail_at(1, taking_effect=taking_effect, stops=False)
    with pytest.raises(StoreFailed):
        publish_two()
    for body in range(1 if taking_effect else 3):
        bus.publish("c", body)
    with pytest.raises(QueueFull):
        bus.publish("c", "too much")
