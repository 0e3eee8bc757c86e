"""Messages that no subscriber takes: counted on each channel, and the first of them named in the log."""

import asyncio
import logging

import pytest

from tests.unit.bus.probes import GUARD_S, Collector
from tests.unit.bus.rigs import Rig
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.pubsub.unrouted import CHANNELS_NAMED_MAX
from unibus.core.envelope.message import Message
from unibus.errors import RequestTimeout

LINE = "has no subscriber"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def unrouted(bus: MessageBus | SyncMessageBus, channel: str) -> int:
    return bus.snapshot(channel).channels[0].outcomes["unrouted"]


def test_the_first_of_a_channel_is_a_warning_with_the_way_out(
    sync_bus: SyncMessageBus, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        sync_bus.publish("orders", number)
    (line,) = lines(caplog)
    assert LINE in line
    assert "'orders'" in line
    assert "create_channel('orders')" in line
    assert "subscribe" in line
    assert unrouted(sync_bus, "orders") == 5


def test_the_name_of_a_queue_gets_another_way_out(sync_bus: SyncMessageBus, caplog: pytest.LogCaptureFixture) -> None:
    sync_bus.create_queue("orders")
    sync_bus.publish("orders", 1)
    assert lines(caplog) == [
        "'orders' is a queue: a message that is published is not stored in it, and not delivered; write "
        "send('orders', …)"
    ]


@pytest.mark.parametrize("way", ["many", "dedup", "message", "from_sync"])
def test_every_way_of_publishing_says_so(way: str, sync_bus: SyncMessageBus, caplog: pytest.LogCaptureFixture) -> None:
    if way == "many":
        sync_bus.publish_many("c", [1, 2])
    elif way == "message":
        sync_bus.publish(Message.new("c"))
    elif way == "from_sync":
        sync_bus.publish_from_sync("c")
    else:
        sync_bus.publish("c", 1, dedup_key="k")
    assert [line for line in lines(caplog) if "'c'" in line]


async def test_the_async_face_says_so(async_bus: MessageBus, caplog: pytest.LogCaptureFixture) -> None:
    await async_bus.publish("orders", 1)
    await async_bus.publish("orders", 2)
    assert len(lines(caplog)) == 1
    assert unrouted(async_bus, "orders") == 2


def test_many_channels_end_in_one_summary(sync_bus: SyncMessageBus, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(CHANNELS_NAMED_MAX + 50):
        sync_bus.publish(f"c{number}")
    found = lines(caplog)
    assert len(found) == CHANNELS_NAMED_MAX + 1
    assert all(LINE in line for line in found[:-1])
    assert "unrouted" in found[-1]
    assert "more channels" in found[-1]


def test_what_is_taken_or_kept_is_no_warning(sync_bus: SyncMessageBus, caplog: pytest.LogCaptureFixture) -> None:
    got = Collector()
    sync_bus.create_channel("kept")
    sync_bus.publish("kept", 1)
    sync_bus.subscribe("c", got)
    sync_bus.publish("c", 1)
    sync_bus.subscribe("tree", got, match="prefix")
    sync_bus.publish("tree.leaf", 2)
    assert sync_bus.drain(GUARD_S)
    assert len(got.bodies) == 2
    assert sync_bus.pop("kept") is not None
    assert lines(caplog) == []


def test_replies_and_dead_letters_are_left_out(sync_bus: SyncMessageBus, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RequestTimeout):
        sync_bus.request("unknown", timeout=0.01)
    sync_bus.publish("$reply/gone", 1)
    sync_bus.publish("orders/$DeadLetterQueue", 1)
    assert lines(caplog) == []


def test_a_handler_of_the_log_may_publish(sync_bus: SyncMessageBus) -> None:
    """One that sends each line to a channel without a subscriber does not do so for ever."""

    class Publishing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            sync_bus.publish("log", record.getMessage())

    handler = Publishing()
    logging.getLogger("unibus").addHandler(handler)
    try:
        sync_bus.publish("orders")
    finally:
        logging.getLogger("unibus").removeHandler(handler)
    assert unrouted(sync_bus, "log") == 2  # For 'orders', and for 'log' itself.


# Persistent channels


def persistent(rig: Rig) -> None:
    """One that was made by a publish, not created: it keeps nothing."""
    rig.bus._durable.by_default = True


@pytest.mark.parametrize("many", [False, True])
def test_a_persistent_channel_counts_and_says_so(rig: Rig, many: bool, caplog: pytest.LogCaptureFixture) -> None:
    persistent(rig)
    for number in range(2):
        if many:
            rig.publish_many("orders", [number])
        else:
            rig.publish("orders", number)
    assert len([line for line in lines(caplog) if LINE in line and "'orders'" in line]) == 1
    outcomes = rig.bus.snapshot("orders").channels[0].outcomes
    assert (outcomes["unrouted"], outcomes["accepted"]) == (2, 0)


def publish_in_transaction(rig: Rig, *given: object) -> None:
    bus = rig.bus
    if isinstance(bus, SyncMessageBus):
        with bus.transaction():
            bus.publish(*given)
    else:

        async def use() -> None:
            async with bus.transaction():
                await bus.publish(*given)

        rig.do(use)


def test_a_persistent_channel_in_a_transaction_counts_too(file_rig: Rig) -> None:
    persistent(file_rig)
    publish_in_transaction(file_rig, "orders", 1)
    assert unrouted(file_rig.bus, "orders") == 1


def test_a_persistent_channel_that_keeps_or_has_a_group_is_routed(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    persistent(rig)
    rig.create_channel("kept", persistent=True)
    rig.publish("kept", 1)
    got = Collector()
    rig.do(lambda: rig.bus.subscribe("orders", got, group="g"))
    rig.publish("orders", 1)
    got.wait(1)
    for channel in ("kept", "orders"):
        outcomes = rig.bus.snapshot(channel).channels[0].outcomes
        assert (outcomes["unrouted"], outcomes["accepted"]) == (0, 1)
    assert lines(caplog) == []


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_duplicate_behind_a_forward_is_a_duplicate(
    file_rig: Rig, in_transaction: bool, caplog: pytest.LogCaptureFixture
) -> None:
    persistent(file_rig)
    file_rig.create_queue("end", dedup_window=60)
    file_rig.create_channel("c", persistent=True)
    file_rig.create_subscription("c", "onward", forward_to="end")
    message = Message.new("c", 1)
    for _ in range(3):
        if in_transaction:
            publish_in_transaction(file_rig, message)
        else:
            file_rig.publish(message)
    outcomes = file_rig.bus.snapshot("c").channels[0].outcomes
    assert {name: count for name, count in outcomes.items() if count} == {"accepted": 1, "duplicate": 2}
    assert lines(caplog) == []
    assert file_rig.counts("end")[0] == 1


def test_a_listener_by_pattern_is_a_subscriber_of_a_persistent_channel(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    persistent(rig)
    got = Collector()
    rig.do(lambda: rig.bus.subscribe("ord", got, match="prefix"))
    rig.publish("orders", 1)
    got.wait(1)
    assert unrouted(rig.bus, "orders") == 0
    assert lines(caplog) == []


async def test_a_group_that_was_deleted_leaves_the_channel_without_a_subscriber(queue_bus: MessageBus) -> None:
    if queue_bus._durable is None:
        queue_bus.with_persistence("memory://")
    assert queue_bus._runtime.durable is not None
    queue_bus._runtime.durable.by_default = True
    subscription = queue_bus.subscribe("jobs", Collector(), group="g")
    await queue_bus.publish("jobs", 1)
    await asyncio.wait_for(queue_bus.drain(), GUARD_S)
    await subscription.cancel()
    await queue_bus.publish("jobs", 2)
    assert unrouted(queue_bus, "jobs") == 0  # The durable group keeps it.
    await queue_bus.delete_entity("jobs/Subscriptions/g")
    await queue_bus.publish("jobs", 3)
    assert unrouted(queue_bus, "jobs") == 1
