"""The store that misbehaves on purpose: "unknown" in both of its meanings, and answers that are late."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from unibus.clock import Timers
from unibus.core.lifecycle.commands import COMPLETE, Declare, Send, Settle
from unibus.core.lifecycle.state.changes import MessageRef
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import EntityNotFound, StoreFailed, StoreUnavailable, UsageError
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.journal import Journal
from unibus.stores.seam.store import ClaimRequest, Store
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.misbehaving_store import MisbehavingStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MisbehavingStore]:
    journal: Journal = MemoryJournal() if request.param == "memory" else SqliteJournal(str(tmp_path / "bus.db"))
    clock = VirtualClock()
    timers: Timers = clock.timers(lambda: True)
    store: Store = EmbeddedStore(journal, clock, timers)
    store.apply([Declare("orders", QUEUE, {})]).wait()
    yield MisbehavingStore(store)
    timers.stop()
    store.close()


def send(number: int) -> Send:
    return Send("orders", MessageRef(f"m{number}", 1), b"x", 20)


def held(store: MisbehavingStore) -> list[str]:
    return [seen.who.message_id for seen in store.peek("orders", 0, 100).wait(10)]


@pytest.mark.parametrize("taking_effect", [True, False])
def test_an_unknown_outcome_is_one_of_two(store: MisbehavingStore, taking_effect: bool) -> None:
    store.fail_at(2, taking_effect=taking_effect)
    store.apply([send(1)]).wait(10)
    with pytest.raises(StoreFailed, match="was planned to fail"):
        store.apply([send(2), send(3)]).wait(10)
    store.heal()
    assert held(store) == (["m1", "m2", "m3"] if taking_effect else ["m1"])


async def test_the_same_on_an_event_loop(store: MisbehavingStore) -> None:
    store.fail_at(1, "claim", taking_effect=True)
    await store.apply([send(1)])
    pending = store.claim(ClaimRequest("orders"))
    with pytest.raises(StoreFailed):
        await pending
    store.heal()
    (info,) = [each for each in await store.entities() if each.name == "orders"]
    assert (info.active, info.locked) == (0, 1)


def test_after_a_failure_the_store_has_stopped_until_it_is_healed(store: MisbehavingStore) -> None:
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


def test_a_settlement_whose_answer_is_lost_has_settled(store: MisbehavingStore) -> None:
    store.apply([send(1)]).wait(10)
    (taken,) = store.claim(ClaimRequest("orders")).wait(10)
    store.fail_at(1, taking_effect=True)
    with pytest.raises(StoreFailed):
        store.apply([Settle(COMPLETE, "orders", taken.sequence, taken.token)]).wait(10)
    store.heal()
    assert held(store) == []


def test_a_call_that_is_refused_is_refused_also_when_it_was_to_fail(store: MisbehavingStore) -> None:
    store.fail_at(1, taking_effect=True)
    with pytest.raises(EntityNotFound):
        store.apply([Send("nowhere", MessageRef("m1", 1), b"x", 20)])
    assert store.health().ok


def test_what_cannot_fail_is_named(store: MisbehavingStore) -> None:
    with pytest.raises(UsageError, match="apply, claim"):
        store.fail_at(1, "peek")
    with pytest.raises(UsageError, match="next call is 1"):
        store.fail_at(0)


# Late answers


@pytest.fixture
def late() -> Iterator[MisbehavingStore]:
    clock = VirtualClock()
    timers = clock.timers(lambda: True)
    store = MisbehavingStore(EmbeddedStore(MemoryJournal(), clock, timers), late=3)
    store.apply([Declare("orders", QUEUE, {})]).wait(10)
    yield store
    timers.stop()
    store.close()


def holding_answers(late: MisbehavingStore) -> AbstractContextManager[object]:
    """No call of this thread is decided inside of the block: the thread that answers needs this lock for each step."""
    assert late._late is not None
    return late._late._changed


def test_a_late_answer_has_no_value_before_it_is_done(late: MisbehavingStore) -> None:
    with holding_answers(late):
        pending = late.apply([send(1)])
        assert (pending.done, pending.is_decided) == (False, False)
        with pytest.raises(RuntimeError, match="has not arrived"):
            list(pending.value)
        with pytest.raises(RuntimeError, match="has not arrived"):
            assert not pending.value
    assert len(pending.wait(10)) == 1
    assert pending.is_decided


def test_reads_of_messages_are_late_too(late: MisbehavingStore) -> None:
    late.apply([send(1)]).wait(10)
    with holding_answers(late):
        listed, bodies, copied = late.list_messages("orders"), late.read_bodies([("orders", 1)]), late.copied()
        missing = late.list_messages("nowhere")
        assert not any(each.is_decided for each in (listed, bodies, copied, missing))
    assert [record.key for record in listed.wait(10)] == [("orders", 1)]
    assert bodies.wait(10) == copied.wait(10).bodies == {("orders", 1): b"x"}
    with pytest.raises(EntityNotFound):
        missing.wait(10)


def test_a_refusal_arrives_with_the_answer_and_is_a_new_error_for_each_caller(late: MisbehavingStore) -> None:
    pending = late.claim(ClaimRequest("nowhere"))
    with pytest.raises(EntityNotFound):
        pending.wait(10)
    assert isinstance(pending.error, EntityNotFound)
    assert pending.error is not pending.error


async def test_calls_of_one_caller_keep_their_order_and_those_of_others_do_not(late: MisbehavingStore) -> None:
    answered: list[tuple[int, int]] = []

    async def work(caller: int) -> None:
        for call in range(50):
            late.peek("orders", 0, 1).on_done(lambda _, call=call: answered.append((caller, call)))  # type: ignore[misc]

    with holding_answers(late):  # So that the calls of all callers are open at once.
        await asyncio.gather(*[work(number) for number in range(3)])
    late.close()
    for number in range(3):
        assert [call for caller, call in answered if caller == number] == list(range(50))
    assert [caller for caller, _ in answered] != sorted(caller for caller, _ in answered)


def test_what_was_asked_is_answered_before_the_store_closes(late: MisbehavingStore) -> None:
    pending = [late.apply([send(number)]) for number in range(20)]
    late.close()
    assert late.is_idle()
    assert [each.error for each in pending] == [None] * 20


def test_a_refusal_on_demand_leaves_the_store_working(store: MisbehavingStore) -> None:
    store.refuse_at(1, "apply")
    with pytest.raises(StoreUnavailable):
        store.apply([send(1)]).wait(10)
    store.refuse_at(2, "apply", EntityNotFound("gone"))
    store.apply([send(2)]).wait(10)
    with pytest.raises(EntityNotFound):
        store.apply([send(3)]).wait(10)
    assert held(store) == ["m2"]


@pytest.mark.parametrize("seed", range(3))
def test_a_hostile_store_says_the_truth_about_what_it_did(store: MisbehavingStore, seed: int) -> None:
    hostile = MisbehavingStore(store, hostile=seed)
    stored, unknown = [], []
    for number in range(200):
        try:
            hostile.apply([send(number)]).wait(10)
            stored.append(f"m{number}")
        except StoreFailed:
            unknown.append(f"m{number}")
            hostile.heal()
        except StoreUnavailable:
            pass
    found = [seen.who.message_id for seen in store.peek("orders", 0, 1_000).wait(10)]
    assert set(stored) <= set(found) <= {*stored, *unknown}
    assert set(unknown) & set(found)
    assert set(unknown) - set(found)
    assert len(stored) + len(unknown) < 200
