"""Request and reply on both faces."""

import asyncio
import threading

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, Gate, run_together, within
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message
from unibus.errors import BusClosed, RequestFailed, RequestTimeout


def double(message: Message) -> object:
    return message.body * 2  # type: ignore[operator]


@pytest.mark.parametrize("dispatch", ["pool", "inline"])
def test_the_reply_is_what_the_handler_returns(sync_bus: SyncMessageBus, dispatch: str) -> None:
    sync_bus.subscribe("c", double, dispatch=dispatch)
    assert sync_bus.request("c", 21, timeout=10) == 42


def test_a_handler_that_returns_nothing_replies_none(sync_bus: SyncMessageBus) -> None:
    sync_bus.subscribe("c", lambda message: None)
    assert sync_bus.request("c", 1, timeout=10) is None


async def test_async_request_to_an_async_handler(async_bus: MessageBus) -> None:
    async def handler(message: Message) -> object:
        await asyncio.sleep(0)
        return [message.body]

    async_bus.subscribe("c", handler)
    assert await async_bus.request("c", "x", timeout=10) == ["x"]
    async_bus.subscribe("d", double)
    assert await async_bus.request("d", 2, timeout=10) == 4


async def test_replies_find_their_own_requests(async_bus: MessageBus) -> None:
    async def handler(message: Message) -> object:
        await asyncio.sleep(0)
        return message.body

    async_bus.subscribe("c", handler, concurrency=4)
    replies = await asyncio.gather(*[async_bus.request("c", number, timeout=10) for number in range(50)])
    assert replies == list(range(50))


async def test_requests_that_share_a_correlation_id_get_their_own_answers(async_bus: MessageBus) -> None:
    order = [asyncio.Event() for _ in range(3)]

    async def handler(message: Message) -> object:
        if message.body < len(order) - 1:  # type: ignore[operator]
            await order[message.body + 1].wait()  # type: ignore[operator]
        order[message.body].set()  # type: ignore[index]
        return message.body

    # The last one is answered first.
    async_bus.subscribe("c", handler, concurrency=3)
    asked = [async_bus.request("c", number, timeout=GUARD_S, correlation_id="order-7") for number in range(3)]
    assert await asyncio.gather(*asked) == [0, 1, 2]
    assert async_bus._requests._waiting == {}


def test_threads_that_share_a_correlation_id_get_their_own_answers(sync_bus: SyncMessageBus) -> None:
    sync_bus.subscribe("c", double, concurrency=4)
    replies: dict[int, object] = {}

    def ask(number: int) -> None:
        replies[number] = sync_bus.request("c", number, timeout=GUARD_S, correlation_id="order-7")

    run_together(8, ask)
    assert replies == {number: 2 * number for number in range(8)}


def test_a_late_reply_answers_no_other_request(sync_bus: SyncMessageBus) -> None:
    gate = Gate()

    def slow(message: Message) -> object:
        gate(message)
        return "late"

    def quick(message: Message) -> object:
        # It answers after the late reply has been published: a handler is counted after its answer.
        gate.open()
        for _ in range(int(GUARD_S * 1_000)):
            if sync_bus.snapshot("slow").channels[0].dispatched:
                return "own"
            threading.Event().wait(0.001)
        raise AssertionError("the late reply was not published")

    sync_bus.subscribe("slow", slow)
    sync_bus.subscribe("quick", quick)
    with pytest.raises(RequestTimeout):
        sync_bus.request("slow", timeout=0.01, correlation_id="order-7")
    gate.wait_entered()
    assert sync_bus.request("quick", timeout=GUARD_S, correlation_id="order-7") == "own"


def test_a_reply_by_hand_needs_only_the_correlation_id(sync_bus: SyncMessageBus) -> None:
    def handler(message: Message) -> None:
        assert message.reply_to is not None
        sync_bus.publish(message.reply_to, "by hand", correlation_id=message.correlation_id)

    sync_bus.subscribe("c", handler)
    assert sync_bus.request("c", 1, timeout=GUARD_S, correlation_id="order-7") == "by hand"


def test_requests_from_many_threads(sync_bus: SyncMessageBus) -> None:
    sync_bus.subscribe("c", double, concurrency=4)
    replies: dict[int, object] = {}

    def ask(number: int) -> None:
        replies[number] = sync_bus.request("c", number, timeout=10)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD_S)
    assert replies == {number: 2 * number for number in range(8)}


def test_no_reply_in_time(sync_bus: SyncMessageBus) -> None:
    with pytest.raises(RequestTimeout) as caught:
        sync_bus.request("nobody", 1, timeout=0.01)
    assert caught.value.retryable
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.hint


async def test_no_reply_in_time_async(async_bus: MessageBus) -> None:
    with pytest.raises(RequestTimeout):
        await async_bus.request("nobody", 1, timeout=0.01)


def test_a_late_reply_is_dropped(sync_bus: SyncMessageBus) -> None:
    release, finished = threading.Event(), Collector()

    def slow(message: Message) -> str:
        assert release.wait(GUARD_S)
        return f"late {message.body}"

    sync_bus.subscribe("c", slow)
    with pytest.raises(RequestTimeout):
        sync_bus.request("c", 1, timeout=0.01)
    release.set()
    assert sync_bus.drain(10)
    assert sync_bus.request("c", 2, timeout=10) == "late 2"
    assert finished.bodies == []


def test_a_request_that_fails_for_good_tells_why(sync_bus: SyncMessageBus) -> None:
    def failing(message: Message) -> None:
        raise ValueError("no stock")

    sync_bus.subscribe("c", failing, retry_attempts=1, retry_delay=0)
    with pytest.raises(RequestFailed, match=r"\(MaxDeliveryCountExceeded\): ValueError: no stock$"):
        sync_bus.request("c", 1, timeout=10)
    assert len(sync_bus.dead_letters("c")) == 1


def test_a_request_whose_payload_does_not_fit_fails_at_once(sync_bus: SyncMessageBus) -> None:
    def wants_int(number: int) -> int:
        return number

    sync_bus.subscribe("c", wants_int)
    with pytest.raises(RequestFailed, match="PayloadMismatch"):
        sync_bus.request("c", "text", timeout=10)


def test_a_request_works_on_a_strict_bus() -> None:
    # Strict refuses the user's unknown channels, not the bus's own inbox.
    with SyncMessageBus(strict=True) as bus:
        bus.create_channel("c")
        bus.subscribe("c", double)
        assert bus.request("c", 4, timeout=10) == 8


def test_a_request_from_within_a_handler_of_a_pool_of_one() -> None:
    with SyncMessageBus(worker_count=1) as bus:
        bus.subscribe("inner", double)
        bus.subscribe("outer", lambda message: bus.request("inner", message.body, timeout=10))
        assert within(lambda: bus.request("outer", 3, timeout=10)) == 6


def test_a_request_on_a_closed_bus() -> None:
    bus = SyncMessageBus()
    bus.close()
    with pytest.raises(BusClosed):
        bus.request("c", 1)


def test_the_asked_sees_correlation_and_reply_to_and_fields(sync_bus: SyncMessageBus) -> None:
    got = Collector()
    sync_bus.subscribe("c", got, dispatch="inline")
    sync_bus.request("c", 1, timeout=10, correlation_id="mine", headers={"a": 1})
    (message,) = got.messages
    assert message.correlation_id == "mine"
    assert message.reply_to
    assert dict(message.headers) == {"a": 1}


def test_a_listener_by_pattern_does_not_answer(sync_bus: SyncMessageBus) -> None:
    # An audit log that hears everything is not asked; its None must not be the reply.
    answering = threading.Event()

    def slow(message: Message) -> int:
        answering.wait(10)
        return 42

    def audit(message: Message) -> None:
        answering.set()

    sync_bus.subscribe("prices", slow)
    sync_bus.subscribe("", audit, match="prefix")
    assert sync_bus.request("prices", 1, timeout=10) == 42


def test_of_several_only_one_that_has_an_answer_answers(sync_bus: SyncMessageBus) -> None:
    logged = threading.Event()

    def slow(message: Message) -> int:
        logged.wait(10)
        return 42

    def log(message: Message) -> None:
        logged.set()

    sync_bus.subscribe("prices", slow)
    sync_bus.subscribe("prices", log)
    assert sync_bus.request("prices", 1, timeout=10) == 42


def test_a_request_that_nobody_hears_fails_at_once(sync_bus: SyncMessageBus) -> None:
    with pytest.raises(RequestTimeout) as caught:
        sync_bus.request("nobody", 1, timeout=None)
    assert "nobody" in str(caught.value)


def test_a_reply_for_a_loop_that_is_closed_hurts_nobody() -> None:
    # The handler has done its work. That the one who asked is gone is no failure of the handler.
    bus = MessageBus()
    entered, go_on = threading.Event(), threading.Event()

    def handler(message: Message) -> object:
        entered.set()
        assert go_on.wait(GUARD_S)
        return message.body

    bus.subscribe("c", handler)
    loop = asyncio.new_event_loop()
    asking = loop.create_task(asked(bus))
    while not entered.is_set():
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    go_on.set()
    assert asyncio.run(drained(bus))
    assert bus.metrics()["errors"] == 0
    assert bus.metrics()["dispatched"] == 2  # The request and its reply.
    asyncio.run(bus.close(GUARD_S))
    asking._log_destroy_pending = False  # type: ignore[attr-defined]
    asking.get_coro().close()  # type: ignore[union-attr]


async def asked(bus: MessageBus) -> object:
    return await bus.request("c", 1, None)


async def drained(bus: MessageBus) -> bool:
    return await bus.drain(GUARD_S)
