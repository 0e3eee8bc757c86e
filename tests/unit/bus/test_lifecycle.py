"""Start, stop, close, and what happens to a bus that is simply dropped."""

import asyncio
import gc
import subprocess
import sys
import threading
import tracemalloc

import pytest

from tests.unit.bus.probes import (
    GUARD_S,
    Collector,
    Flaky,
    Gate,
    assert_all_end,
    bus_threads,
    event_wait,
    within,
)
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.shutdown.at_exit import finish
from unibus.bus.shutdown.steps import Shutdown
from unibus.core.envelope.message import Message
from unibus.errors import BusClosed, ConfigInvalid, RequestTimeout

# Stop


@pytest.mark.parametrize("workers", [1, 4, 64])
def test_stop_returns_and_ends_every_worker(workers: int) -> None:
    # One token for N workers would leave N - 1 of them waiting for ever.
    before = bus_threads()
    bus = SyncMessageBus(worker_count=workers)
    together = threading.Barrier(workers + 1)

    def handler(message: Message) -> None:
        together.wait(GUARD_S)

    bus.subscribe("c", handler, concurrency=workers, retry_attempts=0)
    for _ in range(workers):
        bus.publish("c")
    together.wait(GUARD_S)  # Every worker exists, and has been at work.
    assert len(bus_threads() - before) >= workers
    assert within(lambda: bus.stop(GUARD_S)) is True
    assert_all_end(bus_threads() - before)
    assert bus.metrics()["errors"] == 0
    bus.close(1)


@pytest.mark.parametrize("workers", [1, 4, 64])
def test_stop_returns_with_a_blocked_handler_and_says_so(workers: int) -> None:
    bus = SyncMessageBus(worker_count=workers)
    gate = Gate()
    bus.subscribe("c", gate, concurrency=workers)
    for _ in range(workers):
        bus.publish("c")
    gate.wait_entered(workers)
    assert within(lambda: bus.stop(0.01)) is False
    gate.open()
    bus.close(0.2)


@pytest.mark.parametrize("workers", [1, 4, 64])
async def test_async_stop_returns_with_a_blocked_handler(workers: int) -> None:
    bus = MessageBus(worker_count=workers)
    gate = Gate()
    bus.subscribe("c", gate)
    await bus.publish("c")
    await asyncio.to_thread(gate.wait_entered)
    assert await asyncio.wait_for(bus.stop(0.01), GUARD_S) is False
    gate.open()
    await bus.close(0.2)


def test_a_second_stop_still_knows_of_the_blocked_handler(sync_bus: SyncMessageBus) -> None:
    # Idempotent, and not less true the second time.
    gate = Gate()
    sync_bus.subscribe("c", gate)
    sync_bus.publish("c")
    gate.wait_entered()
    assert sync_bus.stop(0.01) is False
    assert sync_bus.stop(0.01) is False
    gate.open()
    assert sync_bus.stop(GUARD_S) is True
    assert sync_bus.stop(GUARD_S) is True


def test_stop_hands_over_nothing_more(sync_bus: SyncMessageBus) -> None:
    # A worker ends after its current message, not after its backlog.
    before = bus_threads()
    gate = Gate()
    sync_bus.subscribe("c", gate)
    for number in range(10):
        sync_bus.publish("c", number)
    gate.wait_entered()
    assert sync_bus.stop(0.01) is False
    gate.open()
    assert_all_end(bus_threads() - before)
    assert [message.body for message in gate.messages] == [0]
    assert sync_bus.queue_size("c") == 9
    sync_bus.start()
    assert sync_bus.drain(GUARD_S)
    assert [message.body for message in gate.messages] == list(range(10))


def test_a_stopped_bus_without_backlog_is_quiet(sync_bus: SyncMessageBus) -> None:
    # Else closing it would wait in vain: nothing is on its way to anybody.
    before = bus_threads()
    gate = Gate()
    sync_bus.subscribe("c", gate)
    sync_bus.publish("c")
    gate.wait_entered()
    assert sync_bus.stop(0.01) is False
    gate.open()
    assert_all_end(bus_threads() - before)
    assert sync_bus.queue_size("c") == 0
    assert sync_bus.drain(0.5) is True


async def test_stop_hands_nothing_more_to_async_handlers(async_bus: MessageBus) -> None:
    entered, release = asyncio.Event(), asyncio.Event()
    got: list[object] = []

    async def handler(message: Message) -> None:
        got.append(message.body)
        entered.set()
        await release.wait()

    async_bus.subscribe("c", handler)
    for number in range(5):
        await async_bus.publish("c", number)
    await asyncio.wait_for(entered.wait(), GUARD_S)
    stopped = await asyncio.wait_for(async_bus.stop(0.01), GUARD_S)
    assert stopped is False  # One handler is still busy.
    release.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert got == [0]
    assert async_bus.queue_size("c") == 4
    async_bus.start()
    assert await async_bus.drain(GUARD_S)
    assert got == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_messages_published_while_stopped_wait_for_start(sync_bus: SyncMessageBus, kind: str) -> None:
    got = Collector()

    async def async_handler(message: Message) -> None:
        got(message)

    sync_bus.subscribe("c", got if kind == "sync" else async_handler)
    sync_bus.publish("c", 0)
    got.wait(1)
    sync_bus.stop(GUARD_S)
    for number in range(1, 4):
        sync_bus.publish("c", number)
    assert sync_bus.queue_size("c") == 3
    assert not sync_bus.drain(0.01)
    sync_bus.start()
    assert got.wait(4) == [0, 1, 2, 3]


def test_start_is_idempotent_and_may_set_the_number_of_workers(sync_bus: SyncMessageBus) -> None:
    sync_bus.start()
    sync_bus.start(2)
    sync_bus.start(2)
    got = Collector()
    sync_bus.subscribe("c", got)
    sync_bus.publish("c", 1)
    assert got.wait(1) == [1]
    with pytest.raises(ConfigInvalid):
        sync_bus.start(0)


def test_stop_and_start_many_times_lose_nothing(sync_bus: SyncMessageBus) -> None:
    got = Collector()
    sync_bus.subscribe("c", got, concurrency=1)
    for number in range(200):
        sync_bus.publish("c", number)
        if number % 10 == 0:
            assert sync_bus.stop(GUARD_S)
            sync_bus.start()
    assert got.wait(200) == list(range(200))


# Close


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_close_delivers_what_was_published(kind: str) -> None:
    bus = SyncMessageBus()
    got = Collector()

    async def async_handler(message: Message) -> None:
        got(message)

    bus.subscribe("c", got if kind == "sync" else async_handler)
    for number in range(500):
        bus.publish("c", number)
    bus.close(GUARD_S)
    assert got.bodies == list(range(500))


async def test_leaving_the_block_delivers_then_closes() -> None:
    got: list[object] = []

    async def handler(message: Message) -> None:
        await asyncio.sleep(0)
        got.append(message.body)

    async with MessageBus() as bus:
        bus.subscribe("c", handler)
        for number in range(20):
            await bus.publish("c", number)
    assert got == list(range(20))
    with pytest.raises(BusClosed):
        await bus.publish("c", 1)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("unibus-")]


def test_a_closed_bus_refuses_with_a_name_and_a_hint() -> None:
    bus = SyncMessageBus()
    bus.close()
    for call in (
        lambda: bus.publish("c"),
        lambda: bus.publish_many("c", [1]),
        lambda: bus.publish_json("c", 1),
        lambda: bus.publish_from_sync("c"),
        lambda: bus.publish(Message.new("c")),
    ):
        with pytest.raises(BusClosed) as caught:
            call()
        assert caught.value.hint
    assert sum(channel.outcomes["closed"] for channel in bus.snapshot().channels) == 5


def test_a_closed_bus_takes_no_subscribers_or_channels() -> None:
    # A handler that can never be called is a mistake that should show.
    bus = SyncMessageBus()
    bus.close()
    with pytest.raises(BusClosed):
        bus.subscribe("c", Collector())
    with pytest.raises(BusClosed):
        bus.create_channel("c")


def test_close_twice_is_harmless() -> None:
    bus = SyncMessageBus()
    bus.publish("c")
    bus.close()
    bus.close()


async def test_async_close_twice_and_at_once() -> None:
    bus = MessageBus()
    await asyncio.gather(bus.close(), bus.close())
    await bus.close()


def test_handlers_may_publish_while_the_bus_drains() -> None:
    bus = SyncMessageBus()
    gate, results = Gate(), Collector()

    def handler(message: Message) -> None:
        gate(message)
        bus.publish("out", message.body)

    bus.subscribe("in", handler)
    bus.subscribe("out", results)
    bus.publish("in", 1)
    bus.publish("in", 2)
    gate.wait_entered()
    closing = threading.Thread(target=bus.close, args=(GUARD_S,), daemon=True)
    closing.start()
    while True:  # Until the bus refuses strangers.
        try:
            bus.publish("elsewhere")
        except BusClosed:
            break
    gate.open()
    closing.join(GUARD_S)
    assert results.bodies == [1, 2]


async def test_async_handlers_may_publish_while_the_bus_drains() -> None:
    bus = MessageBus()
    entered, release = asyncio.Event(), asyncio.Event()
    results: list[object] = []

    async def handler(message: Message) -> None:
        entered.set()
        await release.wait()
        await bus.publish("out", message.body)

    async def out(message: Message) -> None:
        results.append(message.body)

    bus.subscribe("in", handler, retry_attempts=0)
    bus.subscribe("out", out)
    await bus.publish("in", 1)
    await asyncio.wait_for(entered.wait(), GUARD_S)
    closing = asyncio.create_task(bus.close(GUARD_S))
    await asyncio.sleep(0)
    with pytest.raises(BusClosed):
        await bus.publish("in", 2)
    release.set()
    await asyncio.wait_for(closing, GUARD_S)
    assert results == [1]


async def test_tasks_of_a_handler_may_publish_while_the_bus_drains() -> None:
    # A handler that splits its work is still the handler.
    bus = MessageBus()
    entered, release = asyncio.Event(), asyncio.Event()
    results: list[object] = []

    async def part(number: int) -> None:
        await release.wait()
        await bus.publish("out", number)

    async def handler(message: Message) -> None:
        entered.set()
        await asyncio.gather(part(1), part(2))

    async def out(message: Message) -> None:
        results.append(message.body)

    bus.subscribe("in", handler, retry_attempts=0)
    bus.subscribe("out", out)
    await bus.publish("in")
    await asyncio.wait_for(entered.wait(), GUARD_S)
    closing = asyncio.create_task(bus.close(GUARD_S))
    await asyncio.sleep(0)
    release.set()
    await asyncio.wait_for(closing, GUARD_S)
    assert sorted(results, key=str) == [1, 2]


def test_close_waits_for_retries() -> None:
    # A message that waits for its retry is not yet delivered.
    bus = SyncMessageBus()
    handler = Flaky(failures=2)
    bus.subscribe("c", handler, retry_delay=0.01)
    bus.publish("c", "x")
    bus.close(GUARD_S)
    assert [count for _, count in handler.seen] == [1, 2, 3]


def test_close_returns_with_a_blocked_handler() -> None:
    bus = SyncMessageBus()
    gate = Gate()
    bus.subscribe("c", gate)
    bus.publish("c")
    gate.wait_entered()
    within(lambda: bus.close(0.01))
    gate.open()


async def test_close_ends_an_async_handler_that_does_not_return() -> None:
    bus = MessageBus()
    entered = asyncio.Event()
    ended: list[str] = []

    async def handler(message: Message) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    bus.subscribe("c", handler)
    await bus.publish("c")
    await asyncio.wait_for(entered.wait(), GUARD_S)
    await asyncio.wait_for(bus.close(0.01), GUARD_S)
    assert ended == ["cancelled"]
    assert bus.metrics()["dispatched"] == 0


async def test_close_returns_although_a_handler_swallows_its_cancellation() -> None:
    # A handler that catches too much must not keep the bus from closing.
    bus = MessageBus()
    entered = asyncio.Event()

    async def handler(message: Message) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

    bus.subscribe("c", handler)
    await bus.publish("c", 1)
    await asyncio.wait_for(entered.wait(), GUARD_S)
    await asyncio.wait_for(bus.close(0.01), GUARD_S)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("unibus-")]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_close_ends_every_thread(kind: str) -> None:
    before = bus_threads()
    bus = SyncMessageBus()
    handler = Flaky(failures=1)

    async def async_handler(message: Message) -> None:
        handler(message)

    bus.subscribe("c", handler if kind == "sync" else async_handler, retry_delay=0.001)
    bus.publish("c")
    assert bus.drain(GUARD_S)
    assert bus_threads() - before
    bus.close(GUARD_S)
    assert_all_end(bus_threads() - before)


# Dropped without a word


@pytest.mark.parametrize("kind", ["sync", "async", "retried"])
def test_a_bus_that_is_garbage_collected_stops_its_threads(kind: str) -> None:
    # Workers, timers, overseer and its own loop.
    before = bus_threads()
    flaky = Flaky(failures=1)
    handled = threading.Event()

    async def async_handler(message: Message) -> None:
        handled.set()

    def sync_handler(message: Message) -> None:
        if kind == "retried":
            flaky(message)
        handled.set()

    def use() -> None:
        bus = SyncMessageBus()
        bus.subscribe("c", async_handler if kind == "async" else sync_handler, retry_delay=0.001)
        bus.publish("c")
        event_wait(handled)
        assert bus.drain(GUARD_S)

    use()
    gc.collect()
    assert [count for _, count in flaky.seen] == ([1, 2] if kind == "retried" else [])
    assert_all_end(bus_threads() - before)


def test_a_bus_with_a_stuck_handler_that_is_garbage_collected_stops_its_overseer() -> None:
    before = bus_threads()
    gates = [Gate() for _ in range(2)]

    def use() -> None:
        bus = SyncMessageBus(worker_count=1)
        for gate in gates:
            bus.subscribe("c", gate)
        bus.publish("c")
        for gate in gates:
            gate.wait_entered()

    use()
    for gate in gates:
        gate.open()
    gc.collect()
    assert_all_end(bus_threads() - before)


def test_an_unused_bus_starts_no_thread() -> None:
    # What is not used costs nothing.
    before = bus_threads()
    bus = SyncMessageBus(worker_count=64)
    bus.create_channel("c")
    bus.publish("c")
    bus.subscribe("d", Collector(), dispatch="inline")
    bus.publish("d")
    assert bus_threads() == before
    bus.close()


def test_a_closed_bus_does_not_come_to_life_again() -> None:
    before = bus_threads()
    bus = SyncMessageBus()
    got = Collector()
    bus.create_channel("c")
    bus.publish("c", "kept")
    bus.close(0.1)
    bus.start()
    with pytest.raises(BusClosed):
        bus.subscribe("c", got, dispatch="inline")
    with pytest.raises(BusClosed):
        bus.publish("c")
    assert got.bodies == []  # An inline handler would have got what is kept before subscribe() returned.
    assert_all_end(bus_threads() - before)


# Nothing grows


def test_subscriptions_that_come_and_go_leave_nothing_behind(sync_bus: SyncMessageBus) -> None:
    def churn(times: int) -> None:
        for number in range(times):
            sync_bus.subscribe("c", Collector()).cancel()  # type: ignore[attr-defined]
            sync_bus.subscribe(f"p{number % 3}", Collector(), match="prefix").cancel()  # type: ignore[attr-defined]
            sync_bus.subscribe("a.*", Collector(), match="wildcard").cancel()  # type: ignore[attr-defined]
            sync_bus.publish("c")

    churn(50)
    tracemalloc.start()
    try:
        churn(50)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        churn(1_000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 50_000


def test_loops_that_come_and_go_are_not_remembered() -> None:
    # A bus of a module and a loop per test: the closed loops must be free to go.
    bus = MessageBus()

    async def use() -> None:
        async def handler(message: Message) -> None: ...

        subscription = bus.subscribe("c", handler)
        await bus.publish("c")
        assert await bus.drain(GUARD_S)
        await subscription.cancel()  # type: ignore[attr-defined]

    for _ in range(20):
        asyncio.run(use())
    gc.collect()
    closed = [each for each in gc.get_objects() if isinstance(each, asyncio.BaseEventLoop) and each.is_closed()]
    assert len(closed) < 10
    asyncio.run(bus.close(0.1))


def test_requests_that_time_out_leave_nothing_behind(sync_bus: SyncMessageBus) -> None:
    def ask(times: int) -> None:
        for _ in range(times):
            with pytest.raises(RequestTimeout):
                sync_bus.request("nobody", timeout=0.00001)

    tracemalloc.start()
    try:
        ask(100)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        ask(500)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 50_000


@pytest.mark.processes
def test_a_program_that_forgets_to_close_still_handles_what_it_published() -> None:
    program = """
import time
from unibus.sync import MessageBus
bus = MessageBus()
def handler(message):
    time.sleep(0.05)
    print("got", message.body, flush=True)
bus.subscribe("c", handler)
for number in range(3):
    bus.publish("c", number)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == ["got", "0", "got", "1", "got", "2"]


async def test_a_closed_bus_cannot_be_entered() -> None:
    bus = MessageBus()
    await bus.close()
    with pytest.raises(BusClosed):
        await bus.__aenter__()
    with SyncMessageBus() as sync_bus:
        pass
    with pytest.raises(BusClosed):
        sync_bus.__enter__()


def test_at_the_end_nobody_waits_for_a_bus_that_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Shutdown] = []

    def wait(shutdown: Shutdown, timeout_s: float | None) -> bool:
        waited.append(shutdown)
        return True

    monkeypatch.setattr(Shutdown, "wait_for_handlers", wait)
    with SyncMessageBus() as running, SyncMessageBus() as stopped:
        stopped.subscribe("c", Collector())
        stopped.stop(GUARD_S)
        stopped.publish("c")
        finish([running._runtime.shutdown, stopped._runtime.shutdown])
        assert waited == [running._runtime.shutdown]
