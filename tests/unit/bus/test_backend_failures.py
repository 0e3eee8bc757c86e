"""Workers on a MessageBackend outlive what handlers and backends raise, and nothing is lost meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.bus.probes import GUARD_S
from unibus import InMemoryQueueBackend, MessageBus
from unibus.bus.compat import backend_settling, backend_workers
from unibus.core.envelope.message import Message
from unibus.core.envelope.views import BusMessage
from unibus.errors import ConfigInvalid


class Own(BaseException):
    """No exit of the program, and no Exception either."""


class Unreliable(InMemoryQueueBackend):
    """Fails the first calls of some methods, and remembers what was got and not acknowledged."""

    def __init__(self, **failures: int) -> None:
        super().__init__()
        self.failures = failures
        self.error: BaseException = OSError("the network is gone")
        self.unsettled: list[object] = []
        self.acknowledged = 0

    def _may_fail(self, what: str) -> None:
        if self.failures.get(what, 0) > 0:
            self.failures[what] -= 1
            raise self.error

    async def get(self, topic: str) -> BusMessage:
        self._may_fail("get")
        view = await super().get(topic)
        self.unsettled.append(view.payload)
        return view

    async def publish(self, message: BusMessage) -> None:
        if message.topic.endswith("$DeadLetterQueue"):
            self._may_fail("dead_letter")
        await super().publish(message)

    async def requeue(self, message: BusMessage) -> None:
        self._may_fail("requeue")
        await super().requeue(message)

    async def acknowledge(self, message: BusMessage) -> None:
        self._may_fail("acknowledge")
        self.unsettled.remove(message.payload)
        self.acknowledged += 1


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_workers, "READ_AGAIN_S", 0.0)
    monkeypatch.setattr(backend_settling, "AGAIN_S", 0.0)


async def until(is_true: Callable[[], object]) -> None:
    for _ in range(int(GUARD_S * 1_000)):
        if is_true():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


class Bad:
    """Raises at the messages whose body is "bad"."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.seen: list[object] = []

    def __call__(self, message: Message) -> None:
        self.seen.append(message.body)
        if message.body == "bad":
            raise self.error


def handler_of(kind: str, bad: Bad) -> Callable[[Message], object]:
    async def handler(message: Message) -> None:
        await asyncio.sleep(0)
        bad(message)

    return handler if kind == "async" else bad


@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize(
    "make_error",  # An exception that was raised holds its frames, and with them an event loop.
    [asyncio.CancelledError, Own, lambda: BaseExceptionGroup("g", [KeyboardInterrupt()])],
    ids=["own cancel", "base exception", "group"],
)
async def test_a_worker_outlives_what_its_handler_raises(kind: str, make_error: Callable[[], BaseException]) -> None:
    backend, bad = Unreliable(), Bad(make_error())
    bus = MessageBus(backend)
    subscription: Any = bus.subscribe("t", handler_of(kind, bad), retry_attempts=1, retry_delay=0)
    await bus.publish("t", "bad")
    await bus.publish("t", "good")
    await until(lambda: "good" in bad.seen and not backend.unsettled)
    assert bad.seen == ["bad", "bad", "good"]
    assert subscription.active
    assert subscription.errors == 2
    dead = await asyncio.wait_for(backend.get("t/$DeadLetterQueue"), GUARD_S)
    assert dead.payload == "bad"
    await bus.close(GUARD_S)


async def test_a_sync_handler_may_raise_stop_iteration() -> None:
    # A future refuses to carry it: the worker would wait for ever.
    backend, bad = Unreliable(), Bad(StopIteration())
    bus = MessageBus(backend)
    bus.subscribe("t", bad, retry_attempts=0)
    await bus.publish("t", "bad")
    await bus.publish("t", "good")
    await until(lambda: bad.seen == ["bad", "good"] and not backend.unsettled)
    await bus.close(GUARD_S)


@pytest.mark.parametrize("what", ["acknowledge", "requeue", "dead_letter", "get"])
@pytest.mark.parametrize("make_error", [OSError, asyncio.CancelledError, Own])
async def test_a_worker_outlives_one_failure_of_its_backend(
    what: str, make_error: Callable[[], BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    backend, bad = Unreliable(**{what: 1}), Bad(ValueError("no"))
    backend.error = make_error()
    bus = MessageBus(backend)
    subscription: Any = bus.subscribe("t", handler_of("async", bad), retry_attempts=1, retry_delay=0)
    await bus.publish("t", "bad")
    await bus.publish("t", "good")
    await until(lambda: "good" in bad.seen and not backend.unsettled)
    assert bad.seen == ["bad", "bad", "good"]
    assert backend.acknowledged == 3
    assert subscription.active
    assert subscription.backend_errors == 1
    assert "the backend cannot" in caplog.text
    dead = await asyncio.wait_for(backend.get("t/$DeadLetterQueue"), GUARD_S)
    assert dead.payload == "bad"
    await bus.close(GUARD_S)


async def test_what_cannot_be_acknowledged_does_not_stop_the_worker() -> None:
    backend, bad = Unreliable(acknowledge=backend_settling.TRIES), Bad(ValueError("no"))
    bus = MessageBus(backend)
    subscription: Any = bus.subscribe("t", handler_of("async", bad))
    await bus.publish("t", 1)
    await bus.publish("t", 2)
    await until(lambda: backend.acknowledged == 1)
    assert bad.seen == [1, 2]
    assert backend.unsettled == [1]  # With the backend, to be delivered again.
    assert subscription.backend_errors == backend_settling.TRIES
    await bus.close(GUARD_S)


async def test_a_dead_letter_that_cannot_be_published_is_requeued_and_not_lost() -> None:
    backend, bad = Unreliable(dead_letter=backend_settling.TRIES), Bad(ValueError("no"))
    bus = MessageBus(backend)
    bus.subscribe("t", handler_of("async", bad), retry_attempts=0)
    await bus.publish("t", "bad")
    dead = await asyncio.wait_for(backend.get("t/$DeadLetterQueue"), GUARD_S)
    assert dead.payload == "bad"
    assert bad.seen == ["bad", "bad"]
    await bus.close(GUARD_S)


async def test_what_cannot_be_requeued_is_not_acknowledged() -> None:
    backend, bad = Unreliable(requeue=backend_settling.TRIES), Bad(ValueError("no"))
    bus = MessageBus(backend)
    bus.subscribe("t", handler_of("async", bad), retry_attempts=3, retry_delay=0)
    await bus.publish("t", "bad")
    await bus.publish("t", "good")
    await until(lambda: backend.acknowledged == 1)
    assert backend.unsettled == ["bad"]
    await bus.close(GUARD_S)


async def test_the_pauses_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    def noted(delay_s: float) -> Awaitable[None]:
        pauses.append(delay_s)
        return sleep(0)

    monkeypatch.setattr(backend_settling, "AGAIN_S", 0.4)
    monkeypatch.setattr(asyncio, "sleep", noted)
    backend = Unreliable(acknowledge=4)
    view = BusMessage(Message.new("t", 1))
    backend.unsettled.append(1)
    counts = backend_settling.BackendCounts()
    assert await backend_settling.BackendSettling(backend).acknowledge(view, counts)
    assert pauses == [0.4, 0.8, 1.0, 1.0]
    assert counts.backend_errors == 4


async def test_a_worker_whose_handler_catches_the_cancellation_ends() -> None:
    entered = asyncio.Event()

    async def handler(message: Message) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    backend = Unreliable()
    bus = MessageBus(backend)
    subscription: Any = bus.subscribe("t", handler)
    await bus.publish("t", 1)
    await asyncio.wait_for(entered.wait(), GUARD_S)
    await asyncio.wait_for(subscription.cancel(), GUARD_S)
    assert not subscription.active
    await bus.close(GUARD_S)


async def test_a_cancelled_getter_passes_its_wake_up_on() -> None:
    backend = InMemoryQueueBackend()
    first, second = asyncio.create_task(backend.get("t")), asyncio.create_task(backend.get("t"))
    await asyncio.sleep(0)
    await backend.publish(BusMessage(Message.new("t", 1)))  # Wakes the first one, which does not get to run.
    first.cancel()
    assert (await asyncio.wait_for(second, GUARD_S)).payload == 1
    assert first.cancelled()


async def test_a_cancelled_getter_is_not_remembered() -> None:
    backend = InMemoryQueueBackend()
    for _ in range(3):
        task = asyncio.create_task(backend.get("t"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert backend._waiting == {"t": []}


@pytest.mark.parametrize("concurrency", [0, -1, True, 1.5, "2"])
async def test_a_concurrency_that_is_no_whole_number_from_1_is_refused(concurrency: Any) -> None:
    bus = MessageBus(InMemoryQueueBackend())
    with pytest.raises(ConfigInvalid):
        bus.subscribe("t", print, concurrency=concurrency)
    await bus.close(GUARD_S)
