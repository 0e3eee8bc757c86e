"""The worker pool: event-driven, and stuck handlers do not hold up the others."""

import logging
import os
import threading
from collections.abc import Iterator

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, Flaky, Gate, bus_threads
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message


class Threads:
    """Lets threads of the bus fail to start, as a system does that has no more of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused: list[str] = []
        self.missing = ("unibus-",)
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name.startswith(self.missing):
                self.refused.append(thread.name)
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)

    def come_back(self) -> None:
        self.missing = ()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    made = Threads(monkeypatch)
    yield made
    made.come_back()


def test_the_next_publish_delivers_what_found_no_thread(
    threads: Threads, sync_bus: SyncMessageBus, caplog: pytest.LogCaptureFixture
) -> None:
    got, other = Collector(), Collector()
    sync_bus.subscribe("c", got)
    sync_bus.subscribe("d", other)
    for number in range(3):
        sync_bus.publish("c", number)  # They are admitted: the publisher has nothing to do with threads.
        sync_bus.publish("d", number)
    assert got.bodies == []
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "can't start new thread" in errors[0]
    threads.come_back()
    sync_bus.publish("c", 3)
    assert got.wait(4) == [0, 1, 2, 3]
    assert other.wait(3) == [0, 1, 2]  # The thread is for all of them.
    assert sync_bus.drain(GUARD_S)


def test_closing_works_while_no_thread_can_be_started(threads: Threads) -> None:
    bus = SyncMessageBus()
    got = Collector()
    bus.subscribe("c", got)
    bus.publish("c", 1)
    bus.close(0.05)
    assert got.bodies == []
    assert threads.refused


def test_closing_delivers_once_threads_can_be_started_again(threads: Threads) -> None:
    bus = SyncMessageBus()
    got = Collector()
    bus.subscribe("c", got)
    bus.publish("c", 1)
    threads.come_back()
    bus.close(GUARD_S)
    assert got.bodies == [1]


def test_draining_delivers_once_threads_can_be_started_again(threads: Threads, sync_bus: SyncMessageBus) -> None:
    got = Collector()
    sync_bus.subscribe("c", got)
    sync_bus.publish("c", 1)
    threads.come_back()
    assert sync_bus.drain(GUARD_S)
    assert got.bodies == [1]


def test_a_pool_that_cannot_grow_goes_on_with_the_threads_it_has(threads: Threads) -> None:
    bus = SyncMessageBus(worker_count=2)
    threads.missing = ("unibus-worker-2", "unibus-overseer")
    gate, got = Gate(), Collector()
    bus.subscribe("c", gate)
    bus.subscribe("d", got)
    bus.publish("c", 0)
    gate.wait_entered()
    bus.publish("d", 1)
    assert set(threads.refused) == {"unibus-worker-2", "unibus-overseer"}
    gate.open()
    assert got.wait(1) == [1]
    assert bus.drain(GUARD_S)
    bus.close(GUARD_S)


def test_a_pool_that_could_not_grow_does_so_while_its_threads_are_stuck(threads: Threads) -> None:
    bus = SyncMessageBus(worker_count=2)
    threads.missing = ("unibus-worker-2",)
    gate, got = Gate(), Collector()
    bus.subscribe("c", gate)
    bus.subscribe("d", got)
    bus.publish("c", 0)
    gate.wait_entered()
    bus.publish("d", 1)
    threads.come_back()
    assert got.wait(1) == [1]
    gate.open()
    bus.close(GUARD_S)


def test_an_async_handler_without_a_loop_waits_for_a_thread(
    threads: Threads, sync_bus: SyncMessageBus, caplog: pytest.LogCaptureFixture
) -> None:
    got = Collector()

    async def handler(message: Message) -> None:
        got(message)

    sync_bus.subscribe("c", handler)
    sync_bus.publish("c", 1)
    sync_bus.publish("c", 2)
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1
    threads.come_back()
    sync_bus.publish("c", 3)
    assert got.wait(3) == [1, 2, 3]
    assert sync_bus.drain(GUARD_S)


def test_a_retry_that_found_no_thread_for_its_timer_comes_with_the_next_one(
    threads: Threads, sync_bus: SyncMessageBus, caplog: pytest.LogCaptureFixture
) -> None:
    threads.missing = ("unibus-timers",)
    flaky = Flaky(2)
    sync_bus.subscribe("c", flaky, retry_attempts=3, retry_delay=0.001)
    sync_bus.publish("c", 1)
    while not threads.refused:
        threading.Event().wait(0.001)
    threads.come_back()
    sync_bus.publish("c", 2)
    assert sync_bus.drain(GUARD_S)
    assert sorted(flaky.seen) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert len([record for record in caplog.records if "timer" in record.getMessage()]) == 1


@pytest.mark.parametrize("blocked", [4, 6])
def test_a_fifth_subscriber_gets_messages_while_the_pool_of_four_is_stuck(
    sync_bus: SyncMessageBus, blocked: int
) -> None:
    gates = [Gate() for _ in range(blocked)]
    for gate in gates:
        sync_bus.subscribe("c", gate)
    quick = Collector()
    sync_bus.subscribe("c", quick)
    for number in range(10):
        sync_bus.publish("c", number)
    assert quick.wait(10) == list(range(10))
    for gate in gates:
        gate.wait_entered()
        gate.open()
    assert sync_bus.drain(GUARD_S)
    assert all(len(gate.messages) == 10 for gate in gates)


def test_the_pool_still_grows_after_a_stop_and_a_start(sync_bus: SyncMessageBus) -> None:
    # The same holds after a restart of the pool.
    for life in range(2):
        gates = [Gate() for _ in range(5)]
        subscriptions = [sync_bus.subscribe("c", gate) for gate in gates]
        quick = Collector()
        subscriptions.append(sync_bus.subscribe("c", quick))
        sync_bus.publish("c", life)
        try:
            assert quick.wait(1) == [life]
        finally:
            for gate in gates:
                gate.open()
        assert sync_bus.drain(GUARD_S)
        for subscription in subscriptions:
            subscription.cancel()  # type: ignore[attr-defined]
        assert sync_bus.stop(GUARD_S)
        sync_bus.start()


def test_extra_threads_leave_when_there_is_nothing_to_do() -> None:
    before = bus_threads()
    bus = SyncMessageBus(worker_count=1)
    gates = [Gate() for _ in range(4)]
    for gate in gates:
        bus.subscribe("c", gate)
    bus.publish("c")
    for gate in gates:
        gate.wait_entered()
    grown = {thread for thread in bus_threads() - before if "worker" in thread.name}
    assert len(grown) == 4
    for gate in gates:
        gate.open()
    assert bus.drain(GUARD_S)
    leaving = threading.Event()
    deadline = threading.Timer(GUARD_S, leaving.set)
    deadline.start()
    while sum(thread.is_alive() for thread in grown) > 1 and not leaving.is_set():
        leaving.wait(0.001)
    deadline.cancel()
    assert sum(thread.is_alive() for thread in grown) == 1
    bus.close(GUARD_S)


def test_a_slow_subscriber_gets_all_of_its_messages_in_order(sync_bus: SyncMessageBus) -> None:
    slow, quick = Gate(), Collector()
    sync_bus.subscribe("c", slow)
    sync_bus.subscribe("c", quick)
    for number in range(900):
        sync_bus.publish("c", number)
    assert quick.wait(900) == list(range(900))
    slow.open()
    assert sync_bus.drain(GUARD_S)
    assert [message.body for message in slow.messages] == list(range(900))


def test_a_busy_channel_does_not_starve_another_on_one_worker() -> None:
    # A slot gives way after its quantum: the second channel is served long before the first one ends.
    bus = SyncMessageBus(worker_count=1)
    bus.create_channel("busy", max_queue_size=0)
    order = Collector()
    started = threading.Event()  # Else the worker may be far into the first channel before `start` comes to the second.

    def count(message: Message) -> None:
        assert started.wait(GUARD_S)
        order(message)

    bus.stop(GUARD_S)
    bus.subscribe("busy", count)
    bus.subscribe("other", lambda message: order(message))
    for number in range(2_000):
        bus.publish("busy", number)
    bus.publish("other", "other")
    bus.start()
    started.set()
    assert order.wait(2_001).index("other") < 1_000
    bus.close(GUARD_S)


def test_an_inline_handler_runs_in_the_publishers_thread_before_publish_returns(sync_bus: SyncMessageBus) -> None:
    seen: list[str] = []
    sync_bus.subscribe("c", lambda message: seen.append(threading.current_thread().name), dispatch="inline")
    sync_bus.publish("c")
    assert seen == [threading.current_thread().name]


def test_an_inline_handler_that_fails_does_not_fail_the_publish(sync_bus: SyncMessageBus) -> None:
    # The message was accepted; the retry happens elsewhere.
    handler = Flaky(failures=1)
    got = Collector()
    sync_bus.subscribe("c", handler, dispatch="inline", retry_delay=0)
    sync_bus.subscribe("c", got, dispatch="inline")
    sync_bus.publish("c", "x")
    assert got.bodies == ["x"]
    assert sync_bus.drain(GUARD_S)
    assert handler.seen == [("x", 1), ("x", 2)]


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads Linux's own counters")
def test_an_idle_bus_does_not_wake_up(sync_bus: SyncMessageBus) -> None:
    # Event-driven, nothing polls. A retry far in the future is pending, and the overseer has been called.
    gates = [Gate() for _ in range(5)]
    for gate in gates:
        sync_bus.subscribe("c", gate)
    sync_bus.publish("c")
    for gate in gates:
        gate.wait_entered()
        gate.open()
    failing = Flaky(failures=1)
    sync_bus.subscribe("d", failing, retry_delay=50)
    sync_bus.publish("d")
    assert not sync_bus.drain(0.2)  # Long enough for everybody to settle down.

    def switches() -> dict[str, int]:
        counts: dict[str, int] = {}
        for thread in bus_threads():
            with open(f"/proc/self/task/{thread.native_id}/status") as status:
                (line,) = [line for line in status if line.startswith("voluntary")]
            counts[f"{thread.name}-{thread.native_id}"] = int(line.split()[1])
        return counts

    before = switches()
    assert len(before) >= 3
    assert not threading.Event().wait(0.3)
    assert switches() == before


def test_a_message_is_handed_over_at_once_without_another_event(sync_bus: SyncMessageBus) -> None:
    # No wake-up is ever lost; each message waits for the one before to be handled.
    got = Collector()
    sync_bus.subscribe("c", got)
    for number in range(2_000):
        sync_bus.publish("c", number)
        got.wait(number + 1)
