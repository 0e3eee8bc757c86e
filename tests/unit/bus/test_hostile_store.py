"""A program on a hostile store, which refuses calls and loses answers: errors have names, the state is what the log
says, nothing that was acknowledged is lost or doubled, and drain ends."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from tests.unit.bus.probes import GUARD_S, Collector
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.errors import StoreFailed, StoreUnavailable
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.journal import Journal
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.misbehaving_store import MisbehavingStore

T = TypeVar("T")
SEEDS = range(4)


@pytest.fixture(params=["memory", "sqlite"])
def real(request: pytest.FixtureRequest, folder: Path, virtual_clock: VirtualClock) -> Iterator[EmbeddedStore]:
    journal: Journal = MemoryJournal() if request.param == "memory" else SqliteJournal(str(folder / "bus.db"))
    timers = virtual_clock.timers(lambda: True)
    store = EmbeddedStore(journal, virtual_clock, timers)
    yield store
    store.close()
    timers.stop()


def until_it_works(call: Callable[[], T]) -> T:
    """A program that repeats a call after the two errors that a hostile store has, and after no other one."""
    while True:
        try:
            return call()
        except (StoreFailed, StoreUnavailable):
            continue


def check(real: EmbeddedStore, count: int, stored: str) -> None:
    """Each message was stored once and completed once, and the state in memory is the one that the log describes."""
    for kind in (stored, "completed"):
        rows, _ = real.history.events_after(0, 100_000, (kind,))
        assert len(rows) == count
        assert set(Counter((event.channel, event.sequence) for event in rows).values()) == {1}
        assert set(Counter(event.message_id for event in rows).values()) == {1}
    assert real.check() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sender_that_repeats_with_a_key_stores_each_message_once(
    real: EmbeddedStore, virtual_clock: VirtualClock, seed: int
) -> None:
    store = MisbehavingStore(real, hostile=seed)
    got: set[object] = set()
    with SyncMessageBus(store, clock=virtual_clock) as bus:
        until_it_works(lambda: bus.create_queue("q", dedup_window=600, lock_duration=30, max_delivery_count=100))
        for number in range(200):
            until_it_works(partial(bus.send, "q", number, dedup_key=f"k{number}"))
        assert store.calls["apply"] > 210
        while real.peek("q", 0, 1).wait(GUARD_S):
            for message in until_it_works(lambda: bus.receive_batch("q", 10, timeout=0)):
                got.add(message.body)
                with suppress(StoreFailed, StoreUnavailable):
                    message.complete()
            virtual_clock.advance(31)  # What a lost answer has claimed, or has not settled, is redelivered.
        assert got == set(range(200))
        check(real, 200, "sent")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_handles_every_message_and_drain_ends(
    real: EmbeddedStore, virtual_clock: VirtualClock, seed: int
) -> None:
    store = MisbehavingStore(real, hostile=seed)
    heard = Collector()
    with SyncMessageBus(store, clock=virtual_clock) as bus:
        until_it_works(lambda: bus.create_channel("c", persistent=True, dedup_window=600))
        until_it_works(lambda: bus.create_subscription("c", "g", lock_duration=30))
        # Each completion that is lost is a delivery: with the default of 3 retries, four of them dead-letter a message.
        until_it_works(lambda: bus.subscribe("c", heard, group="g", retry_attempts=99))
        for number in range(100):
            until_it_works(partial(bus.publish, "c", number, dedup_key=f"k{number}"))
        bus.drain(GUARD_S)
        while real.peek("c/Subscriptions/g", 0, 1).wait(GUARD_S):
            virtual_clock.advance(31)
            bus.drain(GUARD_S)
        assert bus.drain(GUARD_S)
        assert {message.body for message in heard.messages} == set(range(100))
        check(real, 100, "copied")
