"""The store that fails on purpose: "unknown" in both of its meanings, on a store in memory and on a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from unibus.clock import Timers
from unibus.core.lifecycle.commands import COMPLETE, Declare, Send, Settle
from unibus.core.lifecycle.state.changes import MessageRef
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import EntityNotFound, StoreFailed, UsageError
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.journal import Journal
from unibus.stores.seam.store import ClaimRequest, Store
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.fault_store import FaultStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultStore]:
    journal: Journal = MemoryJournal() if request.param == "memory" else SqliteJournal(str(tmp_path / "bus.db"))
    clock = VirtualClock()
    timers: Timers = clock.timers(lambda: True)
    store: Store = EmbeddedStore(journal, clock, timers)
    store.apply([Declare("orders", QUEUE, {})]).wait()
    yield FaultStore(store)
    timers.stop()
    store.close()


def send(number: int) -> Send:
    return Send("orders", MessageRef(f"m{number}", 1), b"x", 20)


def held(store: FaultStore) -> list[str]:
    return [seen.who.message_id for seen in store.peek("orders", 0, 100).wait(10)]


@pytest.mark.parametrize("taking_effect", [True, False])
def test_an_unknown_outcome_is_one_of_two(store: FaultStore, taking_effect: bool) -> None:
    store.fail_at(2, taking_effect=taking_effect)
    store.apply([send(1)]).wait(10)
    with pytest.raises(StoreFailed, match="was planned to fail"):
        store.apply([send(2), send(3)]).wait(10)
    store.heal()
    assert held(store) == (["m1", "m2", "m3"] if taking_effect else ["m1"])


async def test_the_same_on_an_event_loop(store: FaultStore) -> None:
    store.fail_at(1, "claim", taking_effect=True)
    await store.apply([send(1)])
    pending = store.claim(ClaimRequest("orders"))
    with pytest.raises(StoreFailed):
        await pending
    store.heal()
    (info,) = [each for each in await store.entities() if each.name == "orders"]
    assert (info.active, info.locked) == (0, 1)


def test_after_a_failure_the_store_has_stopped_until_it_is_healed(store: FaultStore) -> None:
    store.fail_at(1)
    with pytest.raises(StoreFailed):
        store.apply([send(1)]).wait(10)
    assert not store.health().ok
    assert "planned" in store.health().problem
    for call in (
        lambda: store.apply([send(2)]),
        lambda: store.claim(ClaimRequest("orders")),
        lambda: store.peek("orders", 0, 1),
        lambda: store.history.events_after(0),
        lambda: store.watch("orders", lambda: None),
        lambda: store.history.move_cursor("reader", 1),
    ):
        with pytest.raises(StoreFailed):
            call()
    store.heal()
    assert store.health().ok
    assert held(store) == []


def test_a_settlement_whose_answer_is_lost_has_settled(store: FaultStore) -> None:
    store.apply([send(1)]).wait(10)
    (taken,) = store.claim(ClaimRequest("orders")).wait(10)
    store.fail_at(1, taking_effect=True)
    with pytest.raises(StoreFailed):
        store.apply([Settle(COMPLETE, "orders", taken.sequence, taken.token)]).wait(10)
    store.heal()
    assert held(store) == []


def test_a_call_that_is_refused_is_refused_also_when_it_was_to_fail(store: FaultStore) -> None:
    store.fail_at(1, taking_effect=True)
    with pytest.raises(EntityNotFound):
        store.apply([Send("nowhere", MessageRef("m1", 1), b"x", 20)])
    assert store.health().ok


def test_what_cannot_fail_is_named(store: FaultStore) -> None:
    with pytest.raises(UsageError, match="apply, claim"):
        store.fail_at(1, "peek")
    with pytest.raises(UsageError, match="next call is 1"):
        store.fail_at(0)
