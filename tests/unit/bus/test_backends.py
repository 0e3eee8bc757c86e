"""A bus with a user's MessageBackend: order, retries, dead-lettering, cancelled workers, and what it refuses."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S
from unibus import InMemoryQueueBackend, MessageBackend, MessageBus, RedisStreamBackend
from unibus.bus.compat import backend_workers
from unibus.core.envelope.message import Message
from unibus.core.envelope.views import BusMessage
from unibus.errors import ConfigInvalid, StoreUnavailable, UsageError
from unibus.sync import MessageBus as SyncMessageBus


class Noted(InMemoryQueueBackend):
    """A backend that a user might write: it records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    async def publish(self, message: BusMessage) -> None:
        self.calls.append(f"publish {message.topic}")
        await super().publish(message)

    async def requeue(self, message: BusMessage) -> None:
        self.calls.append(f"requeue {message.delivery_attempts}")
        await super().requeue(message)

    async def acknowledge(self, message: BusMessage) -> None:
        self.calls.append(f"acknowledge {message.delivery_attempts}")
        await super().acknowledge(message)

    async def close(self) -> None:
        self.calls.append("close")
        await super().close()


async def next_of(backend: InMemoryQueueBackend, topic: str) -> BusMessage:
    return await asyncio.wait_for(backend.get(topic), GUARD_S)


def test_ours_fulfils_the_protocol() -> None:
    assert isinstance(InMemoryQueueBackend(), MessageBackend)


async def test_the_memory_backend_orders_by_priority_then_arrival() -> None:
    backend = InMemoryQueueBackend()
    for body, priority in [("a", 50), ("b", 0), ("c", 50)]:
        await backend.publish(BusMessage(Message.new("t", body, priority)))
    first = await next_of(backend, "t")
    assert first.payload == "b"
    await backend.requeue(first)  # It is again the first: it keeps its position.
    assert [(await next_of(backend, "t")).payload for _ in range(3)] == ["b", "a", "c"]


async def test_get_waits_for_a_message() -> None:
    backend = InMemoryQueueBackend()
    waiting = asyncio.create_task(backend.get("t"))
    await asyncio.sleep(0)
    assert not waiting.done()
    await backend.publish(BusMessage(Message.new("t", 1)))
    assert (await asyncio.wait_for(waiting, GUARD_S)).payload == 1


async def test_a_handled_message_is_acknowledged_once() -> None:
    backend, handled = Noted(), asyncio.Event()

    async def handler(message: Message) -> None:
        handled.set()

    bus = MessageBus(backend)
    subscription = await bus.subscribe("t", handler)
    await bus.publish("t", {"a": 1}, correlation_id="x")
    await asyncio.wait_for(handled.wait(), GUARD_S)
    assert subscription.active
    await bus.close(GUARD_S)
    assert backend.calls == ["publish t", "acknowledge 1", "close"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_failed_message_is_requeued_before_it_is_acknowledged_and_then_dead(kind: str) -> None:
    backend = Noted()
    attempts: list[int] = []

    def failing(message: Message) -> None:
        attempts.append(message.delivery_count)
        raise ValueError("no")

    async def failing_async(message: Message) -> None:
        failing(message)

    bus = MessageBus(backend)
    bus.subscribe("t", failing if kind == "sync" else failing_async, retry_attempts=1, retry_delay=0)
    await bus.publish("t", "x")
    dead_message = await next_of(backend, "t/$DeadLetterQueue")
    assert attempts == [1, 2]
    assert dead_message.payload == "x"
    assert dead_message.metadata["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert dead_message.metadata["DeadLetterErrorDescription"] == "no"
    await bus.close(GUARD_S)
    assert backend.calls[:4] == ["publish t", "requeue 1", "acknowledge 1", "publish t/$DeadLetterQueue"]


async def test_a_worker_cancelled_in_mid_handler_puts_its_message_back() -> None:
    # A cancelled worker must not acknowledge what was not handled.
    backend, entered = Noted(), asyncio.Event()

    async def handler(message: Message) -> None:
        entered.set()
        await asyncio.Event().wait()

    bus = MessageBus(backend)
    subscription = bus.subscribe("t", handler)
    await bus.publish("t", "x")
    await asyncio.wait_for(entered.wait(), GUARD_S)
    await subscription.cancel()
    assert (await next_of(backend, "t")).payload == "x"
    assert backend.calls == ["publish t", "requeue 1", "acknowledge 1"]
    await bus.close(GUARD_S)


async def test_a_worker_cancelled_while_it_waits_for_a_retry_puts_its_message_back() -> None:
    # The message is not settled during the pause before a retry.
    backend, failed = Noted(), asyncio.Event()

    async def handler(message: Message) -> None:
        failed.set()
        raise ValueError("no")

    bus = MessageBus(backend)
    subscription = bus.subscribe("t", handler, retry_delay=50)
    await bus.publish("t", "x")
    await asyncio.wait_for(failed.wait(), GUARD_S)
    await asyncio.sleep(0)
    await subscription.cancel()
    assert (await next_of(backend, "t")).payload == "x"
    await bus.close(GUARD_S)


async def test_a_decorated_handler_is_called() -> None:
    handled = asyncio.Event()
    bus = MessageBus(InMemoryQueueBackend())

    @bus.subscribe("t")
    async def handler(message: Message) -> None:
        handled.set()

    await bus.publish("t", 1)
    await asyncio.wait_for(handled.wait(), GUARD_S)
    await bus.close(GUARD_S)


async def test_a_backend_that_fails_to_read_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_workers, "READ_AGAIN_S", 0.0)
    handled = asyncio.Event()

    class Broken(InMemoryQueueBackend):
        failures = 2

        async def get(self, topic: str) -> BusMessage:
            if self.failures:
                self.failures -= 1
                raise ConnectionError("gone")
            return await super().get(topic)

    async def handler(message: Message) -> None:
        handled.set()

    bus = MessageBus(Broken())
    bus.subscribe("t", handler)
    await bus.publish("t", 1)
    await asyncio.wait_for(handled.wait(), GUARD_S)
    await bus.close(GUARD_S)


async def test_what_a_backend_cannot_promise_is_refused() -> None:
    bus = MessageBus(InMemoryQueueBackend())
    with pytest.raises(ConfigInvalid):
        bus.subscribe("t", print, dispatch="inline")
    for call in (
        lambda: bus.publish_many("t", [1]),
        lambda: bus.publish_from_sync("t", 1),
        lambda: bus.request("t", 1),
        lambda: bus.subscribe("t", "module", print),
        lambda: bus.queue_size("t"),
        lambda: bus.pop("t"),
        lambda: bus.dead_letters("t"),
        lambda: bus.metrics(),
        lambda: bus.drain(),
        lambda: bus.stop(),
    ):
        with pytest.raises(UsageError):
            call()
    with pytest.raises(UsageError):
        SyncMessageBus(InMemoryQueueBackend())
    assert bus.unsubscribe(12345) is False
    await bus.close(GUARD_S)


def test_redis_is_refused_with_a_hint() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        RedisStreamBackend("redis://localhost", stream_prefix="x")
    assert caught.value.hint


class SlowRequeue(Noted):
    """Its requeue takes time, as one over a network does: it ends when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def requeue(self, message: BusMessage) -> None:
        self.begun.set()
        await self.may_end.wait()
        await super().requeue(message)


@pytest.mark.parametrize("is_unsubscribed", [True, False])
async def test_close_waits_for_a_cancelled_worker_that_requeues_its_message(is_unsubscribed: bool) -> None:
    # A second cancellation would interrupt the requeue, and a closed backend could not take the message.
    backend, entered = SlowRequeue(), asyncio.Event()

    async def handler(message: Message) -> None:
        entered.set()
        await asyncio.Event().wait()

    bus = MessageBus(backend)
    subscription = bus.subscribe("t", handler)
    await bus.publish("t", "x")
    await asyncio.wait_for(entered.wait(), GUARD_S)
    if is_unsubscribed:
        assert bus.unsubscribe(subscription)
    else:
        subscription.cancel()
    await asyncio.wait_for(backend.begun.wait(), GUARD_S)
    closing = asyncio.create_task(bus.close(GUARD_S))
    for _ in range(10):
        await asyncio.sleep(0)
    backend.may_end.set()
    await asyncio.wait_for(closing, GUARD_S)
    assert backend.calls == ["publish t", "requeue 1", "acknowledge 1", "close"]


@pytest.mark.parametrize("api", [MessageBus, SyncMessageBus])
def test_a_backend_beside_a_file_is_refused(api: type, tmp_path: Path) -> None:
    # The messages are in the backend: the file would be opened and never used.
    with pytest.raises(UsageError, match="one store"):
        api(InMemoryQueueBackend(), persistence_path=tmp_path / "bus.db")
    assert list(tmp_path.iterdir()) == []
