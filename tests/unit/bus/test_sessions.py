"""Sessions that several receivers want, and sessions whose lock is lost while a receiver uses them."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S, HandClock, HandTimers, within
from tests.unit.bus.rigs import Rig, fails
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.queues.receivers import SessionReceiver
from unibus.clock import SYSTEM_CLOCK
from unibus.errors import EntityNotFound, SessionLocked, SessionLockLost
from unibus.stores.opening import open_store
from unibus.stores.seam.store import Store
from unibus.testing.misbehaving_store import MisbehavingStore

STEPS = 12


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Thread:
    """Something that has to wait, in a thread, and its result."""

    def __init__(self, action: object) -> None:
        self.result: object = None
        self._done = threading.Event()
        self._action = action
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self.result = self._action()  # type: ignore[operator]
        except BaseException as error:
            self.result = error
        self._done.set()

    def get(self) -> object:
        assert self._done.wait(GUARD_S), "it still waits"
        return self.result

    @property
    def is_waiting(self) -> bool:
        return not self._done.is_set()


# Waiting for a session that another receiver has locked


@pytest.mark.parametrize("messages", [0, 1], ids=["empty", "with messages"])
def test_who_wants_a_held_session_waits_until_it_is_left(rig: Rig, messages: int) -> None:
    rig.create_queue("q", requires_session=True)
    for number in range(messages):
        rig.send("q", number, session_id="a")
    holder = rig.accept_session("q", "a", timeout=0)
    waiting = Thread(lambda: rig.accept_session("q", "a"))
    other = rig.accept_session("q", "b", timeout=0)  # Another one is not held up by that.
    rig.do(other.close)
    assert waiting.is_waiting
    rig.do(holder.close)
    session = waiting.get()
    assert session.id == "a"  # type: ignore[attr-defined]
    with pytest.raises(SessionLocked):
        rig.accept_session("q", "a", timeout=0)
    rig.do(session.close)  # type: ignore[attr-defined]


def test_the_end_of_its_lock_frees_a_session_for_who_waits(rig: Rig) -> None:
    rig.create_queue("q", requires_session=True, lock_duration=0.05)
    lost = rig.accept_session("q", "a", timeout=0)
    session = rig.accept_session("q", "a", timeout=GUARD_S)
    assert session.id == "a"
    with pytest.raises(SessionLockLost):
        rig.do(lost.renew_lock)


def test_at_the_time_out_it_is_still_held(rig: Rig) -> None:
    rig.create_queue("q", requires_session=True)
    holder = rig.accept_session("q", "a", timeout=0)
    for timeout in (0, 0.02):
        with pytest.raises(SessionLocked, match="'a'"):
            rig.accept_session("q", "a", timeout=timeout)
    rig.do(holder.close)
    rig.do(rig.accept_session("q", "a", timeout=0).close)


def test_those_who_wait_get_it_one_after_the_other(rig: Rig) -> None:
    rig.create_queue("q", requires_session=True)
    holder = rig.accept_session("q", "a", timeout=0)

    def hold() -> str:
        session = rig.accept_session("q", "a", timeout=GUARD_S)
        rig.do(session.close)
        return str(session.id)

    waiting = [Thread(hold) for _ in range(5)]
    rig.do(holder.close)
    assert [each.get() for each in waiting] == ["a"] * 5


def test_deleting_the_queue_ends_the_wait(rig: Rig) -> None:
    rig.create_queue("q", requires_session=True)
    rig.accept_session("q", "a", timeout=0)
    waiting = Thread(lambda: rig.accept_session("q", "a"))
    rig.delete_entity("q")
    assert isinstance(waiting.get(), EntityNotFound)


async def test_one_that_is_cancelled_leaves_the_session_to_the_next(queue_bus: MessageBus) -> None:
    await queue_bus.create_queue("q", requires_session=True)
    for steps in range(STEPS):
        # Not 0: a store that answers late may have given the session to the cancelled call, which then releases it.
        holder = await queue_bus.accept_session("q", "a", timeout=GUARD_S)
        tasks = [asyncio.ensure_future(queue_bus.accept_session("q", "a")) for _ in range(2)]
        await turns(STEPS)
        left = asyncio.ensure_future(holder.close())
        await turns(steps)
        tasks[0].cancel()
        await left
        (first, *_) = await asyncio.gather(tasks[0], return_exceptions=True)
        if isinstance(first, SessionReceiver):
            await first.close()
        second = await asyncio.wait_for(tasks[1], GUARD_S)
        await second.close()


@pytest.fixture
async def counting(store_path: Path | None) -> AsyncIterator[tuple[MessageBus, MisbehavingStore]]:
    bus = MessageBus(clock=SYSTEM_CLOCK)
    url = "memory://" if store_path is None else f"sqlite:///{store_path}"
    store: Store = open_store(url, SYSTEM_CLOCK, bus._runtime.timers)
    counted = MisbehavingStore(store)
    bus.with_persistence(counted)
    yield bus, counted
    await bus.close(0.2)


async def test_two_who_wait_do_not_wake_each_other(counting: tuple[MessageBus, MisbehavingStore]) -> None:
    # The session has messages, so a receiver that is woken in vain must not pass the wake-up on: it would get it again.
    bus, store = counting
    await bus.create_queue("q", requires_session=True)
    holder = await bus.accept_session("q", "a", timeout=0)
    tasks = [asyncio.ensure_future(bus.accept_session("q", name)) for name in ("a", "a", None)]
    await turns(STEPS)
    before = store.calls["accept"]
    await bus.send("q", 1, session_id="a")
    await turns(200)
    assert store.calls["accept"] <= before + 2 * len(tasks)
    await holder.close()
    done, rest = await asyncio.wait(tasks, timeout=GUARD_S, return_when=asyncio.FIRST_COMPLETED)
    assert done
    for task in rest:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# A lock that is lost


@pytest.fixture
async def session_bus(hand_clock: HandClock, hand_timers: HandTimers) -> AsyncIterator[MessageBus]:
    bus = MessageBus(clock=hand_clock.clock(hand_timers))
    await bus.create_queue("q", requires_session=True, lock_duration=10)
    await bus.send("q", 1, session_id="a")
    yield bus
    await bus.close(0.2)


def lose(hand_clock: HandClock, hand_timers: HandTimers) -> None:
    hand_clock.advance(11)
    hand_timers.fire()


async def test_a_lost_session_stops_the_body(
    session_bus: MessageBus, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    reached: list[str] = []
    entered = asyncio.Event()

    async def work() -> None:
        async with await session_bus.accept_session("q", "a", timeout=0) as session:
            async for message in session.receive(timeout=0):
                async with message:
                    entered.set()
                    await asyncio.Event().wait()
            reached.append("the end")

    task = asyncio.create_task(work())
    await asyncio.wait_for(entered.wait(), GUARD_S)
    lose(hand_clock, hand_timers)
    done, _ = await asyncio.wait({task}, timeout=GUARD_S)  # Which cancels nothing itself.
    assert done, "it works on"
    with pytest.raises(SessionLockLost):
        await task
    assert reached == []
    async with await session_bus.accept_session("q", "a", timeout=0) as again:
        (message,) = await again.receive_batch(1, timeout=0)
        assert message.delivery_count == 2


async def test_the_task_goes_on_after_its_session_was_lost(
    session_bus: MessageBus, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    session = await session_bus.accept_session("q", "a", timeout=0)
    reached: list[str] = []
    with fails(SessionLockLost):
        async with session:
            lose(hand_clock, hand_timers)
            await asyncio.sleep(GUARD_S)
            reached.append("the end")
    assert reached == []
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    async with asyncio.timeout(GUARD_S):
        await asyncio.sleep(0)
    await session.close()  # It is closed, and says nothing.


async def test_a_session_lost_as_the_block_ends_cancels_nobody_later(
    session_bus: MessageBus, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    session = await session_bus.accept_session("q", "a", timeout=0)
    with fails(SessionLockLost):
        async with session:
            lose(hand_clock, hand_timers)
    await turns(5)  # A stray cancelling would come here.
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_session_that_was_closed_inside_is_not_lost(
    session_bus: MessageBus, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    async with await session_bus.accept_session("q", "a", timeout=0) as session:
        await session.close()
        lose(hand_clock, hand_timers)
        await turns(5)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_an_error_of_the_body_is_not_hidden_by_a_lost_session(
    session_bus: MessageBus, hand_clock: HandClock
) -> None:
    session = await session_bus.accept_session("q", "a", timeout=0)
    with fails(ValueError, match="mine"):
        async with session:
            hand_clock.advance(11)
            raise ValueError("mine")


async def test_somebody_elses_cancelling_frees_the_session(session_bus: MessageBus) -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async with await session_bus.accept_session("q", "a", timeout=0):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await (await session_bus.accept_session("q", "a", timeout=0)).close()


def test_a_thread_learns_of_its_lost_session_in_the_next_call(hand_clock: HandClock, hand_timers: HandTimers) -> None:
    bus = SyncMessageBus(clock=hand_clock.clock(hand_timers))
    bus.create_queue("q", requires_session=True, lock_duration=10)
    session = bus.accept_session("q", "a", timeout=0)
    with fails(SessionLockLost), session:
        lose(hand_clock, hand_timers)
        for call in (session.state, session.renew_lock, lambda: session.receive_batch(1, timeout=0)):
            with pytest.raises(SessionLockLost):
                call()
    other = bus.accept_session("q", "b", timeout=0)
    with fails(ValueError, match="mine"), other:
        hand_clock.advance(11)
        raise ValueError("mine")
    within(lambda: bus.close(0.2))
