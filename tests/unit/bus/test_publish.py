"""Publishing: what is accepted, in which order, and what a refusal leaves behind."""

import math
from datetime import UTC, datetime

import msgspec
import pytest

from tests.same_message import same_message
from tests.unit.bus.probes import Collector, Gate, HandClock
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.codec.codec import decode, decode_json, encode, encode_json
from unibus.core.envelope.message import Message
from unibus.core.envelope.payload import Payload, SerializationFormat
from unibus.core.envelope.priority import Priority
from unibus.errors import QueueFull, RateLimited, SerializationFailed, UsageError


class Thing:
    """Nothing that any encoding knows."""


@pytest.mark.parametrize("body", [Thing(), {"a": 1}, [1], b"raw", bytearray(b"raw"), None, 0, lambda: 1])
def test_the_handler_gets_the_very_object_that_was_published(sync_bus: SyncMessageBus, body: object) -> None:
    # Zero-copy in process.
    first, second = Collector(), Collector()
    sync_bus.subscribe("c", first)
    sync_bus.subscribe("c", second)
    sync_bus.publish("c", body)
    assert first.wait(1)[0] is body
    assert second.wait(1)[0] is body
    assert first.messages[0] is second.messages[0]


def test_a_message_that_is_published_is_the_one_that_arrives(sync_bus: SyncMessageBus) -> None:
    got = Collector()
    sync_bus.subscribe("c", got)
    message = Message.new("c", 1, priority=Priority.HIGH).with_trace_id("t")
    assert sync_bus.publish(message) is message
    got.wait(1)
    assert got.messages[0] is message
    assert (message.sequence, message.priority, message.trace_id) == (1, 25, "t")


def test_a_message_that_is_published_again_has_the_same_id_and_a_place_of_its_own(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    message = Message.new("c", 1)
    sync_bus.publish(message)
    again = sync_bus.publish(message)
    assert again is not message
    assert again.id == message.id
    assert [message.sequence, again.sequence] == [1, 2]


def test_arguments_beside_a_message_are_not_silently_ignored(sync_bus: SyncMessageBus) -> None:
    # Either they count or they are refused; a priority that is dropped without a word is a lost promise.
    sync_bus.create_channel("c")
    try:
        sent = sync_bus.publish(Message.new("c", 1), priority=Priority.CRITICAL, headers={"a": 1})
    except UsageError:
        assert sync_bus.queue_size("c") == 0
    else:
        assert (sent.priority, dict(sent.headers)) == (Priority.CRITICAL, {"a": 1})


def test_a_critical_message_overtakes_a_high_one_that_was_sent_first(sync_bus: SyncMessageBus) -> None:
    # With eight buckets of 32 these two would share one.
    sync_bus.create_channel("c")
    names = ["BACKGROUND", "LOW", "NORMAL", "HIGH", "CRITICAL"]
    for name in names:
        sync_bus.publish("c", name, getattr(Priority, name))
    sync_bus.publish("c", "exact 24", 24)
    got = Collector()
    sync_bus.subscribe("c", got)
    assert got.wait(6) == ["CRITICAL", "exact 24", "HIGH", "NORMAL", "LOW", "BACKGROUND"]


def test_every_priority_from_0_to_255_is_a_level_of_its_own(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    for priority in range(255, -1, -1):
        sync_bus.publish("c", priority, priority)
    popped = [sync_bus.pop("c") for _ in range(256)]
    assert [message.body for message in popped if message is not None] == list(range(256))


def test_the_channels_default_priority_is_used_when_none_is_given(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", default_priority=Priority.LOW)
    assert sync_bus.publish("c").priority == Priority.LOW
    assert sync_bus.publish("c", priority=0).priority == 0
    assert sync_bus.publish("other").priority == Priority.NORMAL


def test_order_is_by_sequence_and_timestamps_are_the_true_wall_clock(
    timed_bus: SyncMessageBus, hand_clock: HandClock
) -> None:
    # No offset is ever added to the clock to keep messages apart.
    timed_bus.create_channel("c")
    sent = [timed_bus.publish("c", number) for number in range(500)]
    assert {message.timestamp_ns for message in sent} == {hand_clock.wall}
    assert [message.sequence for message in sent] == list(range(1, 501))
    hand_clock.wall -= 1  # The clock goes back; the order does not.
    timed_bus.publish("c", 500)
    popped = [timed_bus.pop("c") for _ in range(501)]
    assert [message.body for message in popped if message is not None] == list(range(501))


def test_ids_are_unique_over_buses(sync_bus: SyncMessageBus) -> None:
    with SyncMessageBus() as other:
        ids = {bus.publish("c").id for bus in (sync_bus, other) for _ in range(100)}
    assert len(ids) == 200
    assert all(len(each) <= 128 for each in ids)


def test_every_field_of_the_envelope_can_be_given_under_each_designs_name(sync_bus: SyncMessageBus) -> None:
    message = sync_bus.publish(
        "c",
        1,
        trace_id="t1",
        correlation_id="c1",
        ttl=5,
        fields={
            "metadata": {"n": 1},
            "label": "subject",
            "source": "here",
            "target": "there",
            "reply_to": "back",
            "session_id": "s1",
            "content_type": "application/json",
            "type": "Order",
        },
    )
    assert message.trace_id == "t1"
    assert message.correlation_id == "c1"
    assert dict(message.headers) == {"n": 1}
    assert (message.subject, message.source, message.target) == ("subject", "here", "there")
    assert (message.reply_to, message.session_id, message.ttl) == ("back", "s1", 5.0)
    assert (message.content_type, message.type) == ("application/json", "Order")
    with pytest.raises(UsageError) as caught:
        sync_bus.publish("c", 1, fields={"corelation_id": "x"})
    assert "correlation_id" in caught.value.hint


def test_what_a_handler_got_survives_every_encoding(sync_bus: SyncMessageBus) -> None:
    # With sequence, count, headers, correlation id, source and kind of payload.
    got = Collector()
    sync_bus.subscribe("c", got)
    payloads = [{"a": 1}, b"raw", Payload.serialized(SerializationFormat.BINCODE, b"\x00\xff")]
    for payload in payloads:
        sync_bus.publish("c", payload, 7, "trace", {"n": 1, "b": b"\x00"}, "x", ttl=60, fields={"source": "s"})
    got.wait(3)
    for message in got.messages:
        assert same_message(decode(encode(message)), message)
        assert same_message(decode_json(encode_json(message)), message)


def test_publish_json_takes_what_json_can_express(sync_bus: SyncMessageBus) -> None:
    class Point(msgspec.Struct):
        x: int

    sync_bus.create_channel("c")
    assert sync_bus.publish_json("c", {"a": [1, None]}).as_json() == {"a": [1, None]}
    assert sync_bus.publish_json("c", Point(1)).body == {"x": 1}
    with pytest.raises(SerializationFailed):
        sync_bus.publish_json("c", Thing())
    assert sync_bus.queue_size("c") == 2


def test_a_payload_object_is_unwrapped(sync_bus: SyncMessageBus) -> None:
    assert sync_bus.publish("c", Payload.bytes(b"x")).body == b"x"
    assert sync_bus.publish("c", Payload.json({"a": 1})).body == {"a": 1}


def test_a_refused_publish_leaves_no_trace(timed_bus: SyncMessageBus, hand_clock: HandClock) -> None:
    # No token spent, no id marked, no sequence used.
    timed_bus.with_idempotency(60)
    timed_bus.create_channel("c", max_queue_size=1, rate_limit_per_sec=1, rate_limit_burst=2)
    timed_bus.publish("c", "first")
    refused = Message.new("c", "second")
    for _ in range(5):
        with pytest.raises(QueueFull) as full:
            timed_bus.publish(refused)
        assert full.value.item is refused
        assert refused.sequence == 0
    assert timed_bus.pop("c") is not None
    timed_bus.publish(refused)  # The second token is still there, and the id is not known yet.
    popped = timed_bus.pop("c")
    assert popped is refused
    assert popped.sequence == 2
    late = Message.new("c", "third")
    with pytest.raises(RateLimited) as limited:
        timed_bus.publish(late)
    assert limited.value.retryable
    assert limited.value.retry_after_s == pytest.approx(1.0)
    hand_clock.advance(limited.value.retry_after_s)
    timed_bus.publish(late)
    timed_bus.publish(late)  # Now it is known: a duplicate, silently.
    assert timed_bus.queue_size("c") == 1
    assert timed_bus.pop("c") is late


def test_the_rate_is_checked_before_the_queue(timed_bus: SyncMessageBus) -> None:
    timed_bus.create_channel("c", max_queue_size=1, rate_limit_per_sec=1, rate_limit_burst=1)
    timed_bus.publish("c")
    with pytest.raises(RateLimited):
        timed_bus.publish("c")


def test_the_burst_is_twice_the_rate_by_default(timed_bus: SyncMessageBus) -> None:
    timed_bus.create_channel("c", rate_limit_per_sec=3)
    for _ in range(6):
        timed_bus.publish("c")
    with pytest.raises(RateLimited):
        timed_bus.publish("c")


def test_a_full_group_refuses_for_all_groups(sync_bus: SyncMessageBus) -> None:
    # Admitted by all groups or by none.
    sync_bus.create_channel("c", max_queue_size=1)
    slow, quick = Gate(), Collector()
    sync_bus.subscribe("c", slow)
    sync_bus.subscribe("c", quick)
    sync_bus.publish("c", 1)
    slow.wait_entered()
    quick.wait(1)
    sync_bus.publish("c", 2)
    quick.wait(2)
    with pytest.raises(QueueFull):
        sync_bus.publish("c", 3)
    slow.open()
    assert sync_bus.drain(10)
    assert quick.bodies == [1, 2]
    assert [message.body for message in slow.messages] == [1, 2]


def test_duplicates_are_dropped_silently_and_counted(timed_bus: SyncMessageBus, hand_clock: HandClock) -> None:
    timed_bus.with_idempotency(10)
    timed_bus.create_channel("c")
    message = Message.new("c", 1)
    timed_bus.publish(message)
    assert timed_bus.publish(message).id == message.id
    assert timed_bus.queue_size("c") == 1
    assert timed_bus.snapshot("c").channels[0].outcomes["duplicate"] == 1
    hand_clock.advance(10)
    timed_bus.publish(message)
    assert timed_bus.queue_size("c") == 2


def test_a_dedup_key_works_without_any_setting(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    sync_bus.publish("c", 1, dedup_key="k")
    sync_bus.publish("c", 2, dedup_key="k")
    sync_bus.publish("c", 3, dedup_key="other")
    sync_bus.create_channel("d")
    sync_bus.publish("d", 4, dedup_key="k")  # The scope is the channel.
    assert (sync_bus.queue_size("c"), sync_bus.queue_size("d")) == (2, 1)


# publish_many


def test_publish_many_admits_all_or_none(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=3)
    assert [message.sequence for message in sync_bus.publish_many("c", ["a", "b"])] == [1, 2]
    with pytest.raises(QueueFull):
        sync_bus.publish_many("c", ["c", "d"])
    assert sync_bus.queue_size("c") == 2
    assert sync_bus.publish_many("c", []) == []
    sync_bus.publish_many("c", iter(["e"]), priority=0)
    popped = [sync_bus.pop("c") for _ in range(3)]
    assert [message.body for message in popped if message is not None] == ["e", "a", "b"]


def test_publish_many_is_all_or_none_also_where_a_subscriber_filters(sync_bus: SyncMessageBus) -> None:
    # An error means that nothing was and nothing will be delivered.
    sync_bus.create_channel("c", max_queue_size=2)
    got = Collector()
    sync_bus.stop(10)
    sync_bus.subscribe("c", got, filter=lambda message: True)
    with pytest.raises(QueueFull):
        sync_bus.publish_many("c", [1, 2, 3])
    assert sync_bus.queue_size("c") == 0
    sync_bus.start()
    assert sync_bus.drain(10)
    assert got.bodies == []


def test_publish_many_is_all_or_none_under_a_rate_and_a_filter(timed_bus: SyncMessageBus) -> None:
    timed_bus.create_channel("c", rate_limit_per_sec=1, rate_limit_burst=2)
    got = Collector()
    timed_bus.subscribe("c", got, filter=lambda message: True)
    with pytest.raises(RateLimited):
        timed_bus.publish_many("c", [1, 2, 3])
    assert timed_bus.drain(10)
    assert got.bodies == []


def test_publish_many_delivers_in_order_to_every_kind_of_subscriber(sync_bus: SyncMessageBus) -> None:
    pooled, inline, even = Collector(), Collector(), Collector()
    sync_bus.subscribe("c", pooled)
    sync_bus.subscribe("c", inline, dispatch="inline")
    sync_bus.subscribe("c", even, filter=lambda message: message.body % 2 == 0)
    sync_bus.publish_many("c", range(600))
    assert inline.bodies == list(range(600))
    assert pooled.wait(600) == list(range(600))
    assert even.wait(300) == list(range(0, 600, 2))


async def test_async_publish_gives_the_message_and_is_admitted_at_once(async_bus: MessageBus) -> None:
    async_bus.create_channel("c", max_queue_size=2)
    pending = async_bus.publish("c", 1)
    assert async_bus.queue_size("c") == 1
    message = await pending
    assert (message.body, message.sequence) == (1, 1)
    assert [each.body for each in await async_bus.publish_many("c", [2])] == [2]
    with pytest.raises(QueueFull):
        await async_bus.publish("c", 3)
    with pytest.raises(QueueFull):
        await async_bus.publish_many("c", [3, 4])
    with pytest.raises(QueueFull):
        async_bus.publish_from_sync("c", 3)
    assert async_bus.queue_size("c") == 2
    assert (await async_bus.publish_json("other", {"a": 1})).body == {"a": 1}


def test_a_schedule_that_cannot_be_kept_is_refused(sync_bus: SyncMessageBus) -> None:
    # Ignoring it would deliver at once what was meant for later.
    later = datetime(2100, 1, 1, tzinfo=UTC)
    with pytest.raises(UsageError):
        sync_bus.publish("c", 1, fields={"scheduled_at": later})
    with pytest.raises(UsageError):
        sync_bus.publish(Message.new("c", 1).with_fields({"scheduled_at": later}))


def test_more_than_the_burst_at_once_is_refused_with_the_reason(timed_bus: SyncMessageBus) -> None:
    timed_bus.create_channel("c", rate_limit_per_sec=1, rate_limit_burst=3)
    with pytest.raises(RateLimited) as caught:
        timed_bus.publish_many("c", [1, 2, 3, 4])
    assert caught.value.retry_after_s == math.inf
    assert "fewer" in caught.value.hint


def test_one_text_is_not_several_payloads(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    for text in ("abc", b"abc"):
        with pytest.raises(UsageError):
            sync_bus.publish_many("c", text)  # type: ignore[arg-type]
    assert sync_bus.queue_size("c") == 0
