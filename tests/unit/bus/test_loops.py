"""Loops and threads: where async handlers run, and from where one may publish."""

import asyncio
import contextvars
import threading

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, bus_threads, run_together, within
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message


async def test_an_async_handler_runs_on_the_loop_it_was_subscribed_from(async_bus: MessageBus) -> None:
    seen: list[asyncio.AbstractEventLoop] = []
    done = asyncio.Event()

    async def handler(message: Message) -> None:
        seen.append(asyncio.get_running_loop())
        done.set()

    async_bus.subscribe("c", handler)
    await asyncio.to_thread(async_bus.publish_from_sync, "c")
    await asyncio.wait_for(done.wait(), GUARD_S)
    assert seen == [asyncio.get_running_loop()]


async def test_publishing_from_many_threads_to_an_async_handler_loses_nothing(async_bus: MessageBus) -> None:
    async_bus.create_channel("c", max_queue_size=0)
    got: list[object] = []

    async def handler(message: Message) -> None:
        got.append(message.body)
        if len(got) % 7 == 0:
            await asyncio.sleep(0)

    async_bus.subscribe("c", handler)

    def publish(start: int) -> None:
        for number in range(200):
            async_bus.publish_from_sync("c", (start, number))

    await asyncio.to_thread(run_together, 8, publish)
    assert await async_bus.drain(GUARD_S)
    assert sorted(got) == [(start, number) for start in range(8) for number in range(200)]  # type: ignore[type-var]
    for start in range(8):
        assert [body for body in got if body[0] == start] == [(start, number) for number in range(200)]  # type: ignore[index]


async def test_wake_ups_from_other_threads_are_never_lost(async_bus: MessageBus) -> None:
    # One at a time, each from a foreign thread.
    got: list[object] = []
    arrived = threading.Semaphore(0)

    async def handler(message: Message) -> None:
        got.append(message.body)
        arrived.release()

    async_bus.subscribe("c", handler)

    def publish_one_by_one() -> None:
        for number in range(500):
            async_bus.publish_from_sync("c", number)
            assert arrived.acquire(timeout=GUARD_S), f"{number} did not arrive"

    await asyncio.to_thread(publish_one_by_one)
    assert got == list(range(500))


async def test_asyncio_timeout_works_inside_an_async_handler(async_bus: MessageBus) -> None:
    # It needs a current task, and its cancellation is not ours.
    seen: list[str] = []

    async def handler(message: Message) -> None:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            seen.append("timed out")
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        await asyncio.wait_for(asyncio.sleep(0), GUARD_S)
        seen.append("done")

    async_bus.subscribe("c", handler, retry_attempts=0)
    await async_bus.publish("c")
    assert await async_bus.drain(GUARD_S)
    assert seen == ["timed out", "done"]
    assert async_bus.metrics()["dispatched"] == 1


async def test_a_time_out_that_escapes_the_handler_is_a_failure(async_bus: MessageBus) -> None:
    async def handler(message: Message) -> None:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()

    async_bus.subscribe("c", handler, retry_attempts=0)
    await async_bus.publish("c")
    assert await async_bus.drain(GUARD_S)
    (letter,) = async_bus.dead_letters("c")
    assert letter.headers["DeadLetterErrorType"] == "TimeoutError"


async def test_a_handler_that_does_not_suspend_lets_the_loop_live(async_bus: MessageBus) -> None:
    # Even one that feeds itself for ever.
    stop = False
    calls = 0

    async def handler(message: Message) -> None:
        nonlocal calls
        calls += 1
        if not stop:
            await async_bus.publish("c")

    async_bus.subscribe("c", handler)
    await async_bus.publish("c")
    for _ in range(5):
        await asyncio.sleep(0)
    stop = True
    assert await async_bus.drain(GUARD_S)
    assert calls >= 1


async def test_a_publisher_that_never_waits_lets_its_handlers_run(async_bus: MessageBus) -> None:
    got: list[object] = []

    async def handler(message: Message) -> None:
        got.append(message.body)

    async_bus.create_channel("c", max_queue_size=0)
    async_bus.subscribe("c", handler)
    for number in range(2_000):
        await async_bus.publish("c", number)
    assert len(got) >= 1_000
    assert await async_bus.drain(GUARD_S)
    assert got == list(range(2_000))


def test_a_bus_used_from_several_loops_at_once() -> None:
    # Each handler on its own loop, each gets everything.
    bus = MessageBus()
    ready = threading.Barrier(3)
    seen: dict[int, list[object]] = {0: [], 1: []}
    loops: dict[int, set[asyncio.AbstractEventLoop]] = {0: set(), 1: set()}

    async def on_loop(number: int) -> None:
        done = asyncio.Event()

        async def handler(message: Message) -> None:
            seen[number].append(message.body)
            loops[number].add(asyncio.get_running_loop())
            if len(seen[number]) == 100:
                done.set()

        bus.subscribe("c", handler)
        await asyncio.to_thread(ready.wait, GUARD_S)
        await asyncio.wait_for(done.wait(), GUARD_S)
        assert loops[number] == {asyncio.get_running_loop()}

    threads = [threading.Thread(target=lambda n=n: asyncio.run(on_loop(n))) for n in range(2)]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    ready.wait(GUARD_S)
    for number in range(100):
        bus.publish_from_sync("c", number)
    for thread in threads:
        thread.join(GUARD_S)
    assert seen == {0: list(range(100)), 1: list(range(100))}
    assert loops[0] != loops[1]
    asyncio.run(bus.close(0.1))


def test_a_decorator_before_any_loop_exists_runs_on_the_loop_that_is_entered() -> None:
    bus = MessageBus()
    seen: list[asyncio.AbstractEventLoop] = []

    @bus.subscribe("c")  # type: ignore[operator, misc]
    async def handler(message: Message) -> None:
        seen.append(asyncio.get_running_loop())

    async def main() -> asyncio.AbstractEventLoop:
        async with bus:
            await bus.publish("c")
        return asyncio.get_running_loop()

    loop = asyncio.run(main())
    assert seen == [loop]


def test_a_handler_without_a_loop_of_its_own_follows_the_program_to_its_next_loop() -> None:
    # A bus of a module, and a loop per test or per asyncio.run: the usual case in other people's programs.
    bus = MessageBus()
    seen: list[object] = []

    @bus.subscribe("c")  # type: ignore[operator, misc]
    async def handler(message: Message) -> None:
        seen.append(message.body)

    async def main(number: int) -> None:
        await bus.publish("c", number)
        assert await bus.drain(GUARD_S)

    asyncio.run(main(1))
    asyncio.run(main(2))
    assert seen == [1, 2]
    asyncio.run(bus.close(0.1))


def test_a_publish_to_a_handler_whose_loop_is_gone_does_not_fail() -> None:
    # The message is accepted and waits in its queue; an error would say that it was not.
    bus = MessageBus()
    seen: list[object] = []

    async def handler(message: Message) -> None:
        seen.append(message.body)

    async def first() -> None:
        bus.subscribe("c", handler)
        await bus.publish("c", 1)
        assert await bus.drain(GUARD_S)

    async def second() -> None:
        await bus.publish("c", 2)

    asyncio.run(first())
    asyncio.run(second())
    bus.publish_from_sync("c", 3)
    assert seen == [1]
    assert bus.queue_size("c") == 2
    asyncio.run(bus.close(0.01))


def test_without_any_loop_the_bus_has_one_of_its_own() -> None:
    before = bus_threads()
    bus = MessageBus()
    got = Collector()

    async def handler(message: Message) -> None:
        await asyncio.sleep(0)
        got(message)

    bus.subscribe("c", handler)
    bus.publish_from_sync("c", 1)
    assert got.wait(1) == [1]
    # The timers' thread looks whether a handler blocks the loop.
    assert {thread.name for thread in bus_threads() - before} == {"unibus-loop", "unibus-timers"}
    asyncio.run(bus.close(GUARD_S))
    assert bus_threads() <= before


def test_the_sync_face_runs_async_handlers_beside_a_callers_loop() -> None:
    # A caller on a loop blocks it, so the handlers cannot be there.
    async def main() -> list[object]:
        with SyncMessageBus() as bus:
            got = Collector()

            async def handler(message: Message) -> None:
                await asyncio.sleep(0)
                got(message)

            bus.subscribe("c", handler)
            bus.publish("c", 1)
            return got.wait(1)

    assert asyncio.run(main()) == [1]


async def test_sync_handlers_of_an_async_bus_run_in_threads(async_bus: MessageBus) -> None:
    seen: list[int] = []
    async_bus.subscribe("c", lambda message: seen.append(threading.get_ident()))
    await async_bus.publish("c")
    assert await async_bus.drain(GUARD_S)
    assert seen != [threading.get_ident()]


async def test_a_blocking_sync_handler_does_not_block_the_loop(async_bus: MessageBus) -> None:
    release = threading.Event()
    got: list[object] = []

    async def quick(message: Message) -> None:
        got.append(message.body)

    async_bus.subscribe("c", lambda message: release.wait(GUARD_S))
    async_bus.subscribe("c", quick)
    await async_bus.publish("c", 1)
    for _ in range(3):
        await asyncio.sleep(0)
    assert got == [1]
    release.set()


async def test_cancel_from_another_thread_stops_an_async_handler(async_bus: MessageBus) -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def handler(message: Message) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    subscription = async_bus.subscribe("c", handler)
    await async_bus.publish("c")
    await asyncio.wait_for(entered.wait(), GUARD_S)
    await asyncio.to_thread(subscription.cancel)  # type: ignore[attr-defined]
    await asyncio.wait_for(ended.wait(), GUARD_S)


async def test_context_variables_of_the_publisher_do_not_leak_into_handlers(async_bus: MessageBus) -> None:
    variable = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []

    async def handler(message: Message) -> None:
        seen.append(variable.get())

    async_bus.subscribe("c", handler)
    await async_bus.publish("c", 0)
    assert await async_bus.drain(GUARD_S)
    variable.set("publisher")
    await async_bus.publish("c", 1)
    assert await async_bus.drain(GUARD_S)
    assert seen[1] == seen[0]


@pytest.mark.parametrize("count", [1, 2])
def test_entering_the_bus_makes_its_loop_the_home(count: int) -> None:
    bus = MessageBus()
    seen: list[object] = []

    async def handler(message: Message) -> None:
        seen.append(asyncio.get_running_loop())

    for _ in range(count):
        bus.subscribe("c", handler, group=f"g{_}")

    async def main() -> None:
        async with bus:
            await asyncio.to_thread(bus.publish_from_sync, "c")
            assert await bus.drain(GUARD_S)
            assert seen == [asyncio.get_running_loop()] * count

    asyncio.run(main())


def test_a_loop_ends_though_a_handler_keeps_its_cancellation_to_itself() -> None:
    # A slot is one task for many messages: it must not wait for the next one after that.
    bus = MessageBus()

    async def main() -> None:
        entered = asyncio.Event()

        async def handler(message: Message) -> None:
            entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return

        bus.subscribe("c", handler)
        await bus.publish("c", 1)
        await entered.wait()

    within(lambda: asyncio.run(main()))
    within(lambda: asyncio.run(bus.close(1)))
