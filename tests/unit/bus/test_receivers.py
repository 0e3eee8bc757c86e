"""Receiving: waiting for messages, many at it at once, being cancelled in the middle, and sessions."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S, HandClock, HandTimers, run_together, within
from tests.unit.bus.rigs import Rig
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.queues.received import Received
from unibus.bus.queues.receivers import SessionReceiver
from unibus.errors import (
    BusClosed,
    EntityNotFound,
    LockLost,
    MessageTooLarge,
    SessionLocked,
    SessionLockLost,
    SessionNotAllowed,
    SessionNotFound,
    SessionRequired,
    UsageError,
)

STEPS = 12
"""More turns of the loop than any receive takes."""


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def counts(bus: MessageBus, name: str) -> tuple[int, int, int]:
    (info,) = [info for info in await bus.entities() if info.name == name]
    return info.active, info.locked, info.deferred


# Waiting


def test_receive_ends_when_nothing_came_in_time(rig: Rig) -> None:
    rig.send_many("q", [1, 2, 3])
    assert [message.body for message in rig.each("q")] == [1, 2, 3]
    assert rig.counts("q") == (0, 0, 0, 0, 0)
    assert rig.take("q", 5, timeout=0.01) == []


def test_a_batch_is_what_is_there_and_at_most_so_many(rig: Rig) -> None:
    rig.send_many("q", list(range(5)))
    assert [message.body for message in rig.take("q", 3)] == [0, 1, 2]
    assert [message.body for message in rig.take("q", 3)] == [3, 4]


def test_receive_and_delete_leaves_nothing_to_settle(rig: Rig) -> None:
    rig.send_many("q", [1, 2])
    (message,) = rig.receive_batch("q", 1, timeout=0, mode="receive_and_delete")
    assert rig.counts("q") == (1, 0, 0, 0, 0)
    assert (message.locked_until, message.lock_token) == (None, None)
    for settle in (message.complete, message.abandon, message.renew_lock):
        with pytest.raises(UsageError):
            rig.do(settle)
    if rig.durable:
        rig.reopen()
    assert [message.body for message in rig.take("q", 5)] == [2]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rig: rig.take("q", 0),
        lambda rig: rig.take("q", 10_001),
        lambda rig: rig.take(5),
        lambda rig: rig.receive_batch("q", 1, timeout=0, mode="steal"),
    ],
)
def test_what_is_wrong_with_a_receive_is_said(rig: Rig, wrong: Callable[[Rig], object]) -> None:
    rig.send("q", 1)
    with pytest.raises((UsageError, TypeError)):  # Compiled, Python itself says that a name is text.
        wrong(rig)
    assert rig.counts("q") == (1, 0, 0, 0, 0)


def test_a_queue_may_be_waited_for_before_it_exists_but_nothing_else(rig: Rig) -> None:
    assert rig.take("new") == []
    assert rig.counts("new") == (0, 0, 0, 0, 0)
    with pytest.raises(EntityNotFound):
        rig.take("t/Subscriptions/s")
    rig.create_topic("t")
    with pytest.raises(UsageError):
        rig.take("t")


async def test_whoever_waits_is_woken_by_a_send(queue_bus: MessageBus) -> None:
    waiting = asyncio.create_task(_body(queue_bus))
    await turns(STEPS)
    assert not waiting.done()
    await queue_bus.send("q", "here")
    assert await asyncio.wait_for(waiting, GUARD_S) == "here"


async def _body(bus: MessageBus) -> object:
    (message,) = await bus.receive_batch("q", 1)
    await message.complete()
    return message.body


async def test_one_batch_wakes_as_many_as_it_has_messages_for(queue_bus: MessageBus) -> None:
    waiting = [asyncio.create_task(_body(queue_bus)) for _ in range(20)]
    await turns(STEPS)
    await queue_bus.send_many("q", list(range(20)))
    bodies = await asyncio.wait_for(asyncio.gather(*waiting), GUARD_S)
    assert sorted(bodies) == list(range(20))


def test_a_thread_that_waits_is_woken_by_another(store_path: Path | None) -> None:
    rig = Rig(SyncMessageBus, store_path)
    found: list[object] = []
    run_together(4, lambda number: rig.send("q", number) if number < 2 else found.append(rig.one("q").body))
    assert sorted(found) == [0, 1]
    rig.end()


def test_a_delayed_message_wakes_who_waits(rig: Rig) -> None:
    rig.send("q", 1, delay=0.02)
    assert rig.one("q").body == 1


def test_an_ended_lock_wakes_who_waits(rig: Rig) -> None:
    rig.create_queue("q", lock_duration=0.02)
    rig.send("q", 1)
    lost = rig.one("q")
    again = rig.one("q")
    assert again.delivery_count == 2
    with pytest.raises(LockLost):
        rig.do(lost.complete)


def test_closing_ends_a_wait(store_path: Path | None) -> None:
    rig = Rig(SyncMessageBus, store_path)
    rig.take("q")
    entered = threading.Event()

    def wait() -> None:
        entered.set()
        rig.take("q", 1, GUARD_S)

    def close() -> None:
        entered.wait(GUARD_S)
        rig.close(0.1)

    with pytest.raises(BusClosed):
        run_together(2, lambda number: wait() if number else close())
    rig.end()


async def test_closing_ends_a_wait_on_a_loop(store_path: Path | None) -> None:
    bus = MessageBus() if store_path is None else MessageBus(persistence_path=store_path)
    tasks = [asyncio.create_task(_body(bus)) for _ in range(3)]
    await turns(STEPS)
    await bus.close(0.1)
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), GUARD_S)
    assert [type(result) for result in results] == [BusClosed] * 3


def test_deleting_a_queue_ends_a_wait(store_path: Path | None) -> None:
    rig = Rig(SyncMessageBus, store_path)
    rig.create_topic("t")
    rig.create_subscription("t", "s")
    entered = threading.Event()

    def wait() -> None:
        entered.set()
        rig.take("t/Subscriptions/s", 1, GUARD_S)

    def delete() -> None:
        entered.wait(GUARD_S)
        rig.delete_entity("t")

    with pytest.raises(EntityNotFound):
        run_together(2, lambda number: wait() if number else delete())
    rig.end()


# Many at once


async def test_many_tasks_get_each_message_exactly_once(queue_bus: MessageBus) -> None:
    taken: list[object] = []

    async def receiver() -> None:
        async for message in queue_bus.receive("q", timeout=0.2):
            async with message:
                taken.append(message.body)

    async def sender(first: int) -> None:
        for number in range(first, first + 25):
            await queue_bus.send("q", number)

    await asyncio.gather(*(receiver() for _ in range(8)), *(sender(first) for first in range(0, 100, 25)))
    assert sorted(taken) == list(range(100))
    assert await counts(queue_bus, "q") == (0, 0, 0)


def test_many_threads_get_each_message_exactly_once(store_path: Path | None) -> None:
    rig = Rig(SyncMessageBus, store_path)
    taken: list[object] = []

    def work(number: int) -> None:
        if number < 2:
            for body in range(number, 100, 2):
                rig.bus.send("q", body)
            return
        for message in rig.bus.receive("q", timeout=0.2):
            with message:
                taken.append(message.body)

    run_together(6, work)
    assert sorted(taken) == list(range(100))
    assert rig.counts("q") == (0, 0, 0, 0, 0)
    rig.end()


# Cancelling


async def _cancelled_after(work: Awaitable[object], steps: int) -> object:
    """What the work gave when it was quicker than its cancelling; None if not."""
    task = asyncio.ensure_future(work)
    await turns(steps)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await task
    return None


async def _first(bus: MessageBus) -> Received:
    async for message in bus.receive("q"):
        return message
    raise AssertionError("unreachable")


async def _batch(bus: MessageBus) -> Received:
    (message,) = await bus.receive_batch("q", 5)
    return message


@pytest.mark.parametrize("receive", [_first, _batch], ids=["receive", "receive_batch"])
async def test_a_cancelled_receiver_leaves_its_message_uncounted(
    queue_bus: MessageBus, receive: Callable[[MessageBus], Awaitable[Received]]
) -> None:
    for steps in range(STEPS):
        await queue_bus.send("q", 1)
        message = await _cancelled_after(receive(queue_bus), steps)
        if message is None:
            (message,) = await asyncio.wait_for(queue_bus.receive_batch("q", 5), GUARD_S)
        assert isinstance(message, Received)
        assert message.delivery_count == 1
        await message.complete()
        assert await counts(queue_bus, "q") == (0, 0, 0)


async def test_a_receiver_cancelled_around_a_send_loses_nothing(queue_bus: MessageBus) -> None:
    for steps in range(STEPS):
        task = asyncio.create_task(_batch(queue_bus))
        await turns(steps // 2)
        sending = asyncio.ensure_future(queue_bus.send("q", 1))
        await turns(steps - steps // 2)
        task.cancel()
        (message,) = await asyncio.gather(task, return_exceptions=True)
        await sending
        if not isinstance(message, Received):
            (message,) = await asyncio.wait_for(queue_bus.receive_batch("q", 1), GUARD_S)
        assert message.delivery_count == 1
        await message.complete()


async def test_a_message_is_not_lost_on_a_cancelled_one_of_several(queue_bus: MessageBus) -> None:
    # The one that was woken is cancelled before it can look: another one has to be woken in its place.
    for _ in range(20):
        tasks = [asyncio.create_task(_body(queue_bus)) for _ in range(3)]
        await turns(STEPS)
        sent = queue_bus.send("q", "x")
        tasks[0].cancel()
        await sent
        done, waiting = await asyncio.wait(tasks[1:], timeout=GUARD_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            assert not tasks[0].cancelled(), "no receiver got it"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await counts(queue_bus, "q") == (0, 0, 0)


async def test_a_time_out_of_the_callers_own_is_a_cancelling_too(queue_bus: MessageBus) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_batch(queue_bus), 0.01)
    await queue_bus.send("q", 1)
    for _ in range(10):
        with contextlib.suppress(TimeoutError):
            message = await asyncio.wait_for(_batch(queue_bus), 0)
            await message.release()
    (message,) = await queue_bus.receive_batch("q", 1, timeout=GUARD_S)
    assert message.delivery_count == 1


@pytest.mark.immediate
async def test_a_cancelled_receive_deferred_leaves_them_deferred(queue_bus: MessageBus) -> None:
    for steps in range(STEPS // 2):
        await queue_bus.send("q", 1)
        (message,) = await queue_bus.receive_batch("q", 1)
        await message.defer()
        found = await _cancelled_after(queue_bus.receive_deferred("q", [message.sequence]), steps)
        if found is None:
            assert await counts(queue_bus, "q") == (0, 0, 1)
            found = await queue_bus.receive_deferred("q", [message.sequence])
        assert isinstance(found, list)
        assert [each.delivery_count for each in found] == [2]
        await queue_bus.complete_many(found)


@pytest.mark.immediate
@pytest.mark.parametrize("name", ["s", None], ids=["named", "next"])
async def test_a_cancelled_accept_leaves_the_session_free(queue_bus: MessageBus, name: str | None) -> None:
    await queue_bus.create_queue("q", requires_session=True)
    for steps in range(STEPS):
        await queue_bus.send("q", 1, session_id="s")
        session = await _cancelled_after(queue_bus.accept_session("q", name), steps)
        if session is None:
            session = await asyncio.wait_for(queue_bus.accept_session("q", "s", timeout=0), GUARD_S)
        assert isinstance(session, SessionReceiver)
        async with session:
            (message,) = await session.receive_batch(1, timeout=0)
            assert message.delivery_count == 1
            await message.complete()


async def test_a_cancelled_receive_in_a_session_leaves_its_message_uncounted(queue_bus: MessageBus) -> None:
    await queue_bus.create_queue("q", requires_session=True)
    async with await queue_bus.accept_session("q", "s", timeout=0) as session:
        for steps in range(STEPS // 2):
            await queue_bus.send("q", 1, session_id="s")
            received = await _cancelled_after(session.receive_batch(1), steps)
            if received is None:
                received = await session.receive_batch(1, timeout=GUARD_S)
            assert isinstance(received, list)
            assert [message.delivery_count for message in received] == [1]
            await queue_bus.complete_many(received)


# Sessions


def test_a_session_is_one_receivers_in_order(rig: Rig) -> None:
    rig.create_queue("q", requires_session=True)
    with pytest.raises(SessionRequired):
        rig.send("q", 0)
    for body, session, priority in [(1, "a", 200), (2, "b", 1), (3, "a", 1)]:
        rig.send("q", body, session_id=session, priority=priority)
    with pytest.raises(SessionRequired):
        rig.take("q")
    session = rig.accept_session("q", "a", timeout=0)
    assert session.id == "a"
    with pytest.raises(SessionLocked):
        rig.accept_session("q", "a", timeout=0)
    other = rig.accept_session("q", timeout=0)
    assert other.id == "b"
    with pytest.raises(SessionNotFound):
        rig.accept_session("q", timeout=0)
    messages = rig.do(lambda: session.receive_batch(5, timeout=0))
    assert [message.body for message in messages] == [1, 3]
    for message in messages:
        rig.do(message.complete)
    for each in (session, other, session):
        rig.do(each.close)


def test_a_session_keeps_its_state_and_gives_back_what_was_not_settled(rig: Rig) -> None:
    rig.create_queue("q", requires_session=True)
    rig.send("q", 1, session_id="a")
    session = rig.accept_session("q", "a", timeout=0)
    assert rig.do(session.state) is None
    rig.do(lambda: session.set_state(b"here"))
    with pytest.raises(UsageError):
        rig.do(lambda: session.set_state("text"))
    with pytest.raises(MessageTooLarge):
        rig.do(lambda: session.set_state(bytes(2_000_000)))
    (message,) = rig.do(lambda: session.receive_batch(1, timeout=0))
    rig.do(session.renew_lock)
    rig.do(session.close)
    for call in (message.complete, session.state, session.renew_lock, lambda: session.receive_batch(1, timeout=0)):
        with pytest.raises(LockLost):
            rig.do(call)
    if rig.durable:
        rig.reopen()
    again = rig.accept_session("q", timeout=0)
    assert rig.do(again.state) == b"here"
    (message,) = rig.do(lambda: again.receive_batch(1, timeout=0))
    assert message.delivery_count == 2
    rig.do(message.defer)
    (deferred,) = rig.do(lambda: again.receive_deferred([message.sequence]))
    rig.do(deferred.complete)
    rig.do(again.close)


def test_a_session_lock_that_ended_is_told(timed_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers) -> None:
    timed_rig.create_queue("q", requires_session=True, lock_duration=10)
    timed_rig.send("q", 1, session_id="a")
    session = timed_rig.accept_session("q", timeout=0)
    (message,) = timed_rig.do(lambda: session.receive_batch(1, timeout=0))
    hand_clock.advance(11)
    hand_timers.fire()
    with pytest.raises(SessionLockLost):
        timed_rig.do(session.renew_lock)
    with pytest.raises(LockLost):
        timed_rig.do(message.complete)
    again = timed_rig.accept_session("q", "a", timeout=0)
    timed_rig.do(again.close)


def test_a_queue_without_sessions_has_none(rig: Rig) -> None:
    rig.create_queue("q")
    with pytest.raises(SessionNotAllowed):
        rig.accept_session("q", "a", timeout=0)


async def test_a_session_that_gets_messages_wakes_who_waits_for_it(queue_bus: MessageBus) -> None:
    await queue_bus.create_queue("q", requires_session=True)
    waiting = asyncio.ensure_future(queue_bus.accept_session("q"))
    await turns(STEPS)
    await queue_bus.send("q", 1, session_id="s")
    async with await asyncio.wait_for(waiting, GUARD_S) as session:
        async for message in session.receive(timeout=0):
            async with message:
                assert message.session_id == "s"
    assert await counts(queue_bus, "q") == (0, 0, 0)


def test_a_thread_accepts_a_session_as_it_comes(store_path: Path | None) -> None:
    rig = Rig(SyncMessageBus, store_path)
    rig.create_queue("q", requires_session=True)

    def accept() -> list[object]:
        with rig.bus.accept_session("q", timeout=GUARD_S) as session:
            return [message.body for message in session.receive(timeout=0, mode="receive_and_delete")]

    threading.Timer(0.01, lambda: rig.bus.send("q", 1, session_id="s")).start()
    assert within(accept) == [1]
    rig.end()
