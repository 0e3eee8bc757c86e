"""The envelope."""

import pytest

from tests.same_message import same_message
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.message_properties import TEXT_FIELDS, MessageProperties
from unibus.core.envelope.payload import Payload, SerializationFormat, Serialized
from unibus.core.envelope.priority import Priority
from unibus.core.envelope.stamp import IdGenerator
from unibus.errors import HeaderInvalid, PriorityInvalid, UsageError


def test_a_new_message_has_the_defaults() -> None:
    message = Message.new("orders", {"n": 1})
    assert message.channel == "orders"
    assert message.body == {"n": 1}
    assert message.priority == Priority.NORMAL
    assert message.id
    assert message.timestamp_ns > 0
    assert (message.sequence, message.expires_ns, message.delivery_count) == (0, 0, 0)


def test_the_body_is_the_very_object() -> None:
    body = {"n": [1, 2]}
    assert Message.new("c", body).body is body


def test_the_properties_are_created_when_they_are_needed() -> None:
    message = Message.new("c")
    assert message.properties is None
    texts = (
        message.trace_id,
        message.type,
        message.subject,
        message.content_type,
        message.correlation_id,
        message.reply_to,
        message.source,
        message.target,
        message.session_id,
        message.dedup_key,
        message.traceparent,
        message.ttl,
    )
    assert set(texts) == {None}
    assert dict(message.headers) == {}
    assert dict(message.trace) == {}
    assert message.properties is None  # Reading made nothing.


def test_properties_are_read_by_their_names() -> None:
    message = Message.new("c").with_fields(
        {
            "type": "t",
            "label": "subj",
            "content_type": "text/plain",
            "correlation_id": "c1",
            "reply_to": "back",
            "source": "src",
            "target": "tgt",
            "session_id": "s1",
            "dedup_key": "d1",
            "traceparent": "tp",
            "ttl": 1.5,
            "headers": {"a": 1},
            "tracing": {"k": "v"},
        }
    )
    assert (message.type, message.subject, message.content_type) == ("t", "subj", "text/plain")
    assert (message.correlation_id, message.reply_to, message.source) == ("c1", "back", "src")
    assert (message.target, message.session_id, message.dedup_key) == ("tgt", "s1", "d1")
    assert (message.traceparent, message.ttl) == ("tp", 1.5)
    assert (message.headers, message.trace) == ({"a": 1}, {"k": "v"})


@pytest.mark.parametrize(
    ("fields", "trace_id"),
    [
        ({"trace_id": "given"}, "given"),
        (
            {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
            "4bf92f3577b34da6a3ce929d0e0e4736",
        ),
        ({"trace_id": "given", "traceparent": "00-4bf9-00f0-01"}, "given"),
        ({"traceparent": "nonsense"}, None),
    ],
)
def test_the_trace_id_is_the_given_one_or_that_of_the_traceparent(fields: dict[str, object], trace_id: str) -> None:
    assert Message.new("c").with_fields(fields).trace_id == trace_id


def test_builders_leave_the_message_as_it_was_and_keep_its_id() -> None:
    message = Message.new("c", "body")
    built = message.with_priority(0).with_trace_id("t").with_headers({"a": 1}).with_fields({"subject": "s"})
    assert (message.priority, message.properties) == (Priority.NORMAL, None)
    assert (built.priority, built.trace_id, built.headers, built.subject) == (0, "t", {"a": 1}, "s")
    assert (built.id, built.timestamp_ns, built.body) == (message.id, message.timestamp_ns, message.body)


def test_headers_are_added_to_those_there_are() -> None:
    message = Message.new("c").with_headers({"a": 1, "b": 2})
    more = message.with_headers({"b": 3, "c": 4})
    assert message.headers == {"a": 1, "b": 2}
    assert more.headers == {"a": 1, "b": 3, "c": 4}


def test_builders_check_what_they_are_given() -> None:
    message = Message.new("c")
    with pytest.raises(PriorityInvalid):
        message.with_priority(256)
    with pytest.raises(HeaderInvalid):
        message.with_headers({"a": [1]})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="did you mean 'subject'"):
        message.with_fields({"subjekt": "s"})
    assert message.properties is None


def test_a_copy_has_the_same_place_and_shares_the_content() -> None:
    message = Message.new("c", {"n": 1}).with_headers({"a": 1})
    message.sequence, message.expires_ns, message.delivery_count = 7, 8, 9
    copy = message.copy()
    assert same_message(copy, message)
    assert copy.body is message.body
    assert copy.properties is message.properties
    copy.sequence = 70
    assert message.sequence == 7


@pytest.mark.parametrize("read_at", range(4))
def test_a_message_is_taken_once_and_keeps_its_id(read_at: int) -> None:
    id_generator = IdGenerator("p-", lambda: 0)
    id_generator.number = 0x2F
    message = Message(id_generator, "c", None, Priority.NORMAL, None)
    for step, (action, expected) in enumerate([(message.take, True), (message.take, False), (message.release, None)]):
        if step >= read_at:
            assert message.id == "p-30"
        assert action() is expected
    assert message.id == "p-30"
    assert message.take(), "a publish that was refused has released it"
    assert message.id == "p-30"
    assert message.copy().take(), "a copy is another object"


def test_a_message_that_is_not_taken_can_be_released() -> None:
    message = Message.new("c")
    message.release()
    expected = message.copy().id
    message.release()
    assert message.id == expected
    assert message.take()


def test_what_is_shown_of_a_message_is_not_its_body() -> None:
    message = Message.new("orders", "secret")
    assert "secret" not in repr(message)
    assert message.id in repr(message)
    assert "orders" in repr(message)


def changed(change: str) -> Message:
    message = restored("id", "channel", {"n": 1}, 5, MessageProperties({"a": 1}, {"k": "v"}))
    if change in ("sequence", "expires_ns", "delivery_count", "priority"):
        setattr(message, change, 3)
    elif change == "body":
        message.body = {"n": 2}
    elif change == "channel":
        message.channel = "other"
    elif change:
        assert message.properties is not None
        setattr(
            message.properties,
            change,
            {"other": "x"} if change in ("headers", "trace") else 9 if "_ns" in change else "x",
        )
    return message


def test_same_message_sees_equality() -> None:
    assert same_message(changed(""), changed(""))
    assert same_message(Message.new("c").copy(), Message.new("c")) is False


HOT = ["sequence", "expires_ns", "delivery_count", "priority", "body", "channel"]


@pytest.mark.parametrize("change", [*HOT, *TEXT_FIELDS, "ttl_ns", "scheduled_at_ns", "headers", "trace"])
def test_same_message_sees_every_difference(change: str) -> None:
    assert not same_message(changed(change), changed(""))


def test_empty_properties_are_no_difference() -> None:
    assert same_message(restored("i", "c", None, 1, MessageProperties()), restored("i", "c", None, 1, None))


def test_a_payload_gives_the_kind_of_the_body() -> None:
    assert Message.new("c", 1).payload == Payload.json(1)
    assert Message.new("c", Serialized(SerializationFormat.RKYV, b"x")).payload.kind == "serialized"
