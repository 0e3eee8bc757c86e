"""What the recording buses remember, and what they do not."""

import asyncio
import threading

import pytest

from unibus.core.envelope.message import Message
from unibus.errors import BusClosed, ChannelNotFound, PriorityInvalid, QueueFull, RateLimited, SerializationFailed
from unibus.testing import RecordingBus, RecordingSyncBus, VirtualClock


def bodies(bus, channel=None):
    return [message.body for message in bus.sent(channel)]


@pytest.fixture
async def bus():
    async with RecordingBus() as bus:
        yield bus


@pytest.fixture
def sync_bus():
    with RecordingSyncBus() as bus:
        yield bus


async def test_every_way_of_publishing_is_recorded_once_and_in_order(bus):
    await bus.publish("a", 1)
    await bus.publish_many("b", [2, 3])
    await bus.publish_json("a", {"number": 4})
    bus.publish_from_sync("b", 5)
    await bus.publish(Message.new("a", 6))
    await asyncio.to_thread(bus.publish_from_sync, "b", 7)
    assert bodies(bus) == [1, 2, 3, {"number": 4}, 5, 6, 7]
    assert bodies(bus, "a") == [1, {"number": 4}, 6]
    assert bodies(bus, "b") == [2, 3, 5, 7]
    assert bodies(bus, "c") == []


def test_every_way_of_the_sync_bus_is_recorded_once_and_in_order(sync_bus):
    sync_bus.publish("a", 1)
    sync_bus.publish_many("b", [2, 3])
    sync_bus.publish_json("a", {"number": 4})
    sync_bus.publish_from_sync("b", 5)
    sync_bus.publish(Message.new("a", 6))
    assert bodies(sync_bus) == [1, 2, 3, {"number": 4}, 5, 6]
    assert bodies(sync_bus, "b") == [2, 3, 5]


async def test_the_record_has_the_envelope_that_the_handler_gets(bus):
    seen = []
    bus.subscribe("orders", seen.append)
    await bus.publish("orders", {"id": 1}, priority=3, trace_id="t", headers={"h": 1}, correlation_id="c")
    assert await bus.drain()
    (message,) = bus.sent()
    assert message is seen[0]
    assert (message.priority, message.trace_id, message.correlation_id) == (3, "t", "c")
    assert message.headers == {"h": 1}


async def test_a_publish_counts_when_it_was_accepted_even_if_nobody_awaits_it_yet(bus):
    sending = bus.publish("orders", 1)
    assert bodies(bus) == [1]
    assert await sending is bus.sent()[0]


async def test_what_handlers_publish_through_the_bus_is_recorded(bus):
    async def on_order(message):
        await bus.publish("invoices", message.body)

    def on_invoice(message):
        bus.publish_from_sync("mails", message.body)

    bus.subscribe("orders", on_order)
    bus.subscribe("invoices", on_invoice)
    await bus.publish("orders", 7)
    assert await bus.drain()
    assert [(message.channel, message.body) for message in bus.sent()] == [("orders", 7), ("invoices", 7), ("mails", 7)]


@pytest.mark.parametrize("many", [False, True])
def test_what_an_inline_handler_publishes_comes_after_what_it_was_called_for(sync_bus, many):
    sync_bus.subscribe("orders", lambda message: sync_bus.publish("invoices", "second"), dispatch="inline")
    if many:
        sync_bus.publish_many("orders", ["first"])
    else:
        sync_bus.publish("orders", "first")
    assert bodies(sync_bus) == ["first", "second"]


async def test_a_refused_message_is_not_recorded(bus):
    bus.create_channel("full", max_queue_size=1)
    bus.create_channel("slow", rate_limit_per_sec=1, rate_limit_burst=1)
    await bus.publish("full", "fits")
    await bus.publish("slow", "in time")
    with pytest.raises(QueueFull):
        await bus.publish("full", "refused")
    with pytest.raises(QueueFull):
        await bus.publish_many("full", ["refused", "too"])
    with pytest.raises(QueueFull):
        bus.publish_from_sync("full", "refused")
    with pytest.raises(RateLimited):
        await bus.publish("slow", "refused")
    with pytest.raises(PriorityInvalid):
        await bus.publish("other", "refused", priority=256)
    with pytest.raises(SerializationFailed):
        await bus.publish_json("other", object())
    assert bodies(bus) == ["fits", "in time"]


def test_a_message_that_the_sync_bus_refused_is_not_recorded(sync_bus):
    sync_bus.create_channel("full", max_queue_size=1)
    sync_bus.publish("full", "fits")
    with pytest.raises(QueueFull):
        sync_bus.publish("full", "refused")
    with pytest.raises(QueueFull):
        sync_bus.publish_many("full", ["refused", "too"])
    assert bodies(sync_bus) == ["fits"]


async def test_a_closed_or_strict_bus_records_nothing():
    async with RecordingBus(strict=True) as bus:
        with pytest.raises(ChannelNotFound):
            await bus.publish("unknown", 1)
    with pytest.raises(BusClosed):
        await bus.publish("unknown", 1)
    assert bus.sent() == []


async def test_a_refused_message_that_is_offered_again_stands_where_it_was_accepted(bus):
    bus.create_channel("full", max_queue_size=1)
    await bus.publish("full", "fits")
    again = Message.new("full", "again")
    with pytest.raises(QueueFull):
        await bus.publish(again)
    await bus.publish("other", "between")
    bus.pop("full")
    await bus.publish(again)
    assert bodies(bus) == ["fits", "between", "again"]


async def test_a_message_that_is_published_twice_is_recorded_twice(bus):
    message = Message.new("orders", 1)
    await bus.publish(message)
    await bus.publish(message)
    first, second = bus.sent()
    assert first.id == second.id == message.id
    assert [first.sequence, second.sequence] == [1, 2]


async def test_a_duplicate_that_the_bus_dropped_was_not_sent(bus):
    bus.create_channel("orders", dedup_window=60)
    await bus.publish("orders", "first", dedup_key="k")
    await bus.publish("orders", "again", dedup_key="k")
    assert bodies(bus) == ["first"]


async def test_a_publish_that_waits_for_room_counts_when_it_got_it(bus):
    bus.create_channel("orders", max_queue_size=1, drop_policy="block", block_timeout=5)
    await bus.publish("orders", "first")
    waiting = asyncio.ensure_future(bus.publish("orders", "second"))
    await asyncio.sleep(0)
    assert bodies(bus) == ["first"]
    bus.pop("orders")
    await waiting
    assert bodies(bus) == ["first", "second"]


async def test_a_publish_that_waited_in_vain_was_not_sent(bus):
    bus.create_channel("orders", max_queue_size=1, drop_policy="block", block_timeout=0.01)
    await bus.publish("orders", "first")
    with pytest.raises(QueueFull):
        await bus.publish("orders", "second")
    assert bodies(bus) == ["first"]


async def test_a_request_is_recorded_and_its_reply_is_not(bus):
    bus.subscribe("price", lambda message: 42)
    assert await bus.request("price", "apple") == 42
    assert bodies(bus) == ["apple"]


def test_a_request_of_the_sync_bus_is_recorded(sync_bus):
    sync_bus.subscribe("price", lambda message: 42)
    assert sync_bus.request("price", "apple") == 42
    assert bodies(sync_bus) == ["apple"]


def test_publishers_in_many_threads_are_all_recorded(sync_bus):
    sync_bus.create_channel("orders", max_queue_size=0)

    def publish(first):
        for number in range(first, first + 200):
            sync_bus.publish("orders", number)

    threads = [threading.Thread(target=publish, args=(first,)) for first in range(0, 800, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(bodies(sync_bus)) == list(range(800))


# drain


async def test_drain_waits_for_retries_in_real_time(bus):
    calls = []

    def fails_once(message):
        calls.append(message)
        if len(calls) == 1:
            raise ValueError("once")

    bus.subscribe("orders", fails_once, retry_delay=0.01)
    await bus.publish("orders")
    assert await bus.drain()
    assert len(calls) == 2


async def test_drain_moves_a_virtual_clock_from_retry_to_retry():
    clock = VirtualClock()
    times = []

    async def failing(message):
        times.append(clock.elapsed)
        raise ValueError("always")

    async with RecordingBus(clock=clock) as bus:
        bus.subscribe("orders", failing, retry_attempts=2, retry_delay=60, retry_backoff=2, retry_jitter=0)
        await bus.publish("orders")
        assert await bus.drain()
        assert times == [0, 60, 120]  # The second wait is twice the first, but never over a minute.
        assert len(bus.dead_letters("orders")) == 1


def test_drain_of_the_sync_bus_moves_a_virtual_clock_too():
    clock = VirtualClock()
    times = []

    def failing(message):
        times.append(clock.elapsed)
        raise ValueError("always")

    with RecordingSyncBus(clock=clock) as bus:
        bus.subscribe("orders", failing, retry_attempts=2, retry_delay=1, retry_jitter=0)
        bus.publish("orders")
        assert bus.drain()
        assert times == [0, 1, 3]


async def test_drain_says_false_when_a_handler_does_not_return_with_either_clock():
    for clock in (None, VirtualClock()):
        async with RecordingBus(clock=clock) as bus:
            release = asyncio.Event()

            async def stuck(message, release=release):
                await release.wait()

            bus.subscribe("orders", stuck)
            await bus.publish("orders")
            assert not await bus.drain(timeout=0.01)
            release.set()
            assert await bus.drain()


def test_drain_of_the_sync_bus_says_false_when_a_handler_does_not_return():
    for clock in (None, VirtualClock()):
        with RecordingSyncBus(clock=clock) as bus:
            release = threading.Event()
            bus.subscribe("orders", lambda message, release=release: release.wait(5))
            bus.publish("orders")
            assert not bus.drain(timeout=0.01)
            release.set()
            assert bus.drain()


# The end of a fixture


def test_end_finishes_the_tasks_of_a_loop_that_stands_still():
    loop = asyncio.new_event_loop()
    bus = RecordingBus()
    cancelled = []

    async def stuck(message):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(message.body)
            raise

    async def test():
        bus.subscribe("orders", stuck)
        await bus.publish("orders", 1)
        await asyncio.sleep(0.001)

    loop.run_until_complete(test())
    bus.end()
    assert cancelled == [1]
    assert asyncio.all_tasks(loop) == set()
    loop.close()
    with pytest.raises(BusClosed):
        bus.publish_from_sync("orders", 2)


def test_end_works_after_the_loop_was_closed_and_twice():
    bus = RecordingBus()
    seen = []

    async def handler(message):
        seen.append(message.body)

    async def test():
        bus.subscribe("orders", handler)
        await bus.publish("orders", 1)
        assert await bus.drain()

    asyncio.run(test())
    bus.end()
    bus.end()
    assert seen == [1]


def test_end_works_without_any_loop():
    bus = RecordingBus()
    seen = []
    done = threading.Event()

    async def handler(message):
        seen.append(message.body)
        done.set()

    bus.subscribe("orders", handler)
    bus.publish_from_sync("orders", 1)
    assert done.wait(5)
    bus.end()
    assert seen == [1]


async def test_handlers_that_were_subscribed_before_there_was_a_loop_run_on_the_first_one_that_uses_the_bus():
    loop = asyncio.get_running_loop()
    bus = RecordingBus()
    seen = []

    async def handler(message):
        seen.append(asyncio.get_running_loop())

    await asyncio.to_thread(bus.subscribe, "orders", handler)
    await bus.publish("other")
    await asyncio.to_thread(bus.publish_from_sync, "orders")
    assert await bus.drain()
    assert seen == [loop]
    await bus.close()
