"""Bulk operations on dead-lettered messages: batches, rates, interruption; an error of one does not stop the others."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bus.dead_letter_rig import (
    DeadLetterOperations,
    dead_letter,
    dead_letter_many,
    dead_letter_next,
    dead_letter_queue_of,
)
from tests.unit.bus.probes import GUARD_S, SECOND, HandClock, HandTimers, within
from tests.unit.bus.rigs import NoTimers, Rig, breaking_store
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.clock import SYSTEM_CLOCK
from unibus.core.lifecycle.commands import DEAD_LETTER, Remove, Settle
from unibus.errors import BusClosed, EntityNotFound, StoreFailed, UsageError
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.store import ClaimRequest
from unibus.testing import VirtualClock


@pytest.fixture
def dlq(rig: Rig) -> DeadLetterOperations:
    return DeadLetterOperations(rig)


def test_all_are_retried_in_batches_with_progress(rig: Rig, dlq: DeadLetterOperations) -> None:
    dead_letter_many(rig, "a", 5)
    dead_letter_many(rig, "b", 2)
    progress_calls: list[tuple[int, int]] = []
    result = dlq.retry_all(batch_size=3, progress=lambda done, total: progress_calls.append((done, total)))
    assert (result.retried, result.done, result.skipped, result.errors) == (7, 7, 0, [])
    assert progress_calls == [(3, 7), (6, 7), (7, 7)]
    assert rig.counts("a") == (5, 0, 0, 0, 0)
    assert rig.counts("b") == (2, 0, 0, 0, 0)
    assert [message.body for message in rig.take("a", 9)] == [0, 1, 2, 3, 4]
    assert dlq.retry_all().done == 0  # Again, and nothing is left to do.


def test_only_what_the_filter_takes(rig: Rig, dlq: DeadLetterOperations) -> None:
    dead_letter_many(rig, "a", 3, "One")
    dead_letter_many(rig, "a", 2, "Two")
    assert dlq.discard_all(reason="one").discarded == 3
    assert dlq.discard_all({"where": lambda message: message.body == 0}).discarded == 1
    assert rig.counts("a") == (0, 0, 0, 0, 1)


def test_a_redirect_of_many_needs_an_existing_target(rig: Rig, dlq: DeadLetterOperations) -> None:
    dead_letter_many(rig, "a", 3)
    with pytest.raises(UsageError):
        dlq.redirect_all()
    with pytest.raises(EntityNotFound):
        dlq.redirect_all(target="unknown")
    rig.create_queue("review")
    assert dlq.redirect_all({"queue": "a"}, "review").redirected == 3
    assert rig.counts("review")[0] == 3


def test_a_dry_run_counts_and_changes_nothing(rig: Rig, dlq: DeadLetterOperations) -> None:
    dead_letter_many(rig, "a", 3)
    rig.one(dead_letter_queue_of("a"))
    result = dlq.retry_all(dry_run=True)
    assert (result.retried, result.skipped, result.dry_run) == (2, 1, True)
    assert rig.counts("a") == (0, 0, 0, 0, 3)


def test_what_is_dead_lettered_meanwhile_is_left_for_the_next_run(rig: Rig, dlq: DeadLetterOperations) -> None:
    """Otherwise a message that fails at once would be retried for ever."""
    dead_letter_many(rig, "a", 4)
    manager = rig.bus.dead_letter_queue()
    store = rig.bus._runtime.queues().store

    def fail_again(done: int, total: int) -> None:
        for claimed in store.claim(ClaimRequest("a", 9)).wait():
            store.apply([Settle(DEAD_LETTER, claimed.entity, claimed.sequence, claimed.token)]).wait()

    result = rig.do(lambda: manager.retry_all(batch_size=2, progress=fail_again))
    assert result.retried == 4
    assert rig.counts("a") == (0, 0, 0, 0, 4)
    assert {dead_message.recovery_attempts for dead_message in dlq.list_messages()} == {1}


def test_locked_and_gone_ones_are_skipped(rig: Rig, dlq: DeadLetterOperations) -> None:
    dead_letter_many(rig, "a", 4)
    rig.one(dead_letter_queue_of("a"))
    gone = dlq.list_messages()[3]
    store = rig.bus._runtime.queues().store

    def take_away(done: int, total: int) -> None:
        if done == 2:
            store.apply([Remove(gone.entity, gone.sequence, "test")])

    result = dlq.retry_all(batch_size=2, progress=take_away)
    assert (result.retried, result.skipped, result.errors) == (2, 2, [])
    assert rig.counts("a") == (2, 0, 0, 0, 1)


def test_one_that_cannot_go_does_not_stop_the_others(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.create_queue("s", requires_session=True)
    ids = [dead_letter(rig, "q", number, session_id=None if number in (3, 4, 9) else "c") for number in range(12)]
    result = dlq.redirect_all(target="s", batch_size=12)
    assert result.redirected == 9
    assert [message_id for message_id, _ in result.errors] == [ids[3], ids[4], ids[9]]
    assert all("session" in text for _, text in result.errors)
    assert dlq.ids() == [ids[3], ids[4], ids[9]]


def test_messages_whose_source_was_deleted_are_errors(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.create_queue("failures")
    for name in ("here", "gone"):
        rig.create_queue(name, forward_dead_letters_to="failures")
    ids = [dead_letter(rig, name, 1) for name in ("here", "gone", "here")]
    rig.delete_entity("gone")
    result = dlq.retry_all()
    assert (result.retried, [each for each, _ in result.errors]) == (2, [ids[1]])
    assert dlq.ids() == [ids[1]]


def test_a_filter_that_raises_is_an_error_of_that_dead_message(rig: Rig, dlq: DeadLetterOperations) -> None:
    dead_letter(rig, "q", {"n": 1})
    bad = dead_letter(rig, "q", "text")
    dead_letter(rig, "q", {"n": 2})
    result = dlq.retry_all(where=lambda message: message.body["n"])
    assert (result.retried, [each for each, _ in result.errors]) == (2, [bad])
    assert "TypeError" in result.errors[0][1]


def test_those_recovered_too_often_are_left_for_review(rig: Rig, dlq: DeadLetterOperations) -> None:
    often = dead_letter(rig, "q", 1)
    dlq.retry_message(often)
    dead_letter_next(rig, "q")
    dead_letter(rig, "q", 2)
    strict = DeadLetterOperations(rig, max_recoveries=1)
    result = strict.retry_all()
    assert (result.retried, result.manual_review) == (1, 1)
    assert dlq.ids() == [often]
    assert strict.retry_all(force=True).retried == 1


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"batch_size": True}, {"batch_size": 10_001}, {"rate": 0}])
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with SyncMessageBus() as bus, pytest.raises(UsageError):
        bus.dead_letter_queue().retry_all(**wrong)


# Interrupted, and continued


class Enough(Exception):
    pass


def test_the_progress_callback_can_stop_it(rig: Rig, dlq: DeadLetterOperations) -> None:
    dead_letter_many(rig, "a", 7)

    def stop(done: int, total: int) -> None:
        if done >= 4:
            raise Enough

    with pytest.raises(Enough):
        dlq.retry_all(batch_size=2, progress=stop)
    assert rig.counts("a") == (4, 0, 0, 0, 3)
    assert dlq.retry_all().retried == 3
    assert rig.counts("a") == (7, 0, 0, 0, 0)


def test_a_guard_surrounds_each_batch_with_its_progress(rig: Rig, dlq: DeadLetterOperations) -> None:
    progress_calls: list[str] = []

    @contextmanager
    def guard() -> Iterator[None]:
        progress_calls.append("in")
        yield
        progress_calls.append("out")

    dead_letter_many(rig, "a", 3)
    dlq.manager.guard = guard
    dlq.retry_all(batch_size=2, progress=lambda done, total: progress_calls.append(str(done)))
    assert progress_calls == ["in", "2", "out", "in", "3", "out"]


def test_a_store_that_stops_is_no_error_of_a_dead_message(tmp_path: Path) -> None:
    store, journal = breaking_store(tmp_path / "bus.db")
    with SyncMessageBus(store) as bus:
        for number in range(4):
            bus.send("q", number)
            bus.receive_batch("q", 1, 0)[0].dead_letter("Broken")

        def break_it(done: int, total: int) -> None:
            journal.broken = True

        with pytest.raises(StoreFailed):
            bus.dead_letter_queue().retry_all(batch_size=2, progress=break_it)
        with pytest.raises(StoreFailed):
            bus.dead_letter_queue().retry_message("any")
    with SyncMessageBus(persistence_path=tmp_path / "bus.db") as bus:
        (info,) = [each for each in bus.entities() if each.name == "q"]
        assert (info.active, info.dead) == (2, 2)
        assert bus.dead_letter_queue().retry_all().retried == 2


# Rates


def test_a_rate_is_kept_by_the_clock_of_the_bus() -> None:
    """At 20 a second two go every tenth: with the full bucket at the beginning, ten messages take four tenths."""
    with VirtualClock() as clock, SyncMessageBus(clock=clock) as bus:
        for number in range(10):
            bus.send("q", number)
            bus.receive_batch("q", 1, 0)[0].dead_letter("Broken")
        began_ns = clock.monotonic_ns()
        at_s: list[tuple[int, float]] = []

        def progress(done: int, total: int) -> None:
            at_s.append((done, (clock.monotonic_ns() - began_ns) / SECOND))

        worker = threading.Thread(target=bus.dead_letter_queue().retry_all, kwargs={"rate": 20, "progress": progress})
        worker.start()
        while worker.is_alive():
            worker.join(0.01)
            clock.advance(0.01)
    assert [done for done, _ in at_s] == [2, 4, 6, 8, 10]
    for done, seconds in at_s:
        assert seconds >= (done - 2) / 20


def test_the_pause_of_a_rate_is_waited_for_by_timers(
    timed_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    dead_letter_many(timed_rig, "a", 3)
    hand_timers.fire()
    seen: list[int] = []
    manager = timed_rig.bus.dead_letter_queue()
    work = threading.Thread(
        target=lambda: timed_rig.do(lambda: manager.retry_all(rate=1, progress=lambda done, total: seen.append(done)))
    )
    work.start()
    for _ in range(2):
        while work.is_alive() and not any(delay == SECOND + 1 for delay in hand_timers.delays_ns):
            work.join(0.001)
        hand_timers.delays_ns.clear()
        hand_clock.advance(1)
        hand_timers.fire()
    work.join(GUARD_S)
    assert seen == [1, 2, 3]
    assert timed_rig.counts("a")[0] == 3


def test_closing_the_bus_ends_a_pause() -> None:
    clock = HandClock().clock(HandTimers())
    bus = SyncMessageBus(clock=clock)
    for number in range(3):
        bus.send("q", number)
        bus.receive_batch("q", 1, 0)[0].dead_letter("Broken")
    first = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            bus.dead_letter_queue().retry_all(rate=0.001, progress=lambda done, total: first.set())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert first.wait(GUARD_S)
    within(lambda: bus.close(0.1))
    thread.join(GUARD_S)
    assert not thread.is_alive()
    assert isinstance(errors[0], BusClosed)


async def test_others_run_while_many_are_moved(queue_bus: Any) -> None:
    await queue_bus.send_many("q", range(1_500))
    for message in await queue_bus.receive_batch("q", 1_500, 1):
        message.dead_letter("Broken")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    assert (await queue_bus.dead_letter_queue().retry_all(batch_size=100)).retried == 1_500
    task.cancel()
    assert turns >= 15


def test_no_timers_are_needed_without_a_rate(tmp_path: Path) -> None:
    with SyncMessageBus(EmbeddedStore(MemoryJournal(), SYSTEM_CLOCK, NoTimers())) as bus:
        bus.send("q", 1)
        bus.receive_batch("q", 1, 0)[0].dead_letter("Broken")
        assert bus.dead_letter_queue().retry_all().retried == 1
