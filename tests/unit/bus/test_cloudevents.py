"""CloudEvents 1.0, with the SDK of the CloudEvents project as the other side."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

from unibus.bus.cloudevents.events import from_cloudevent, from_cloudevent_binary, to_cloudevent, to_cloudevent_binary
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.payload import SerializationFormat, Serialized
from unibus.errors import CloudEventInvalid, DecodeError, SerializationFailed
from unibus.sync import MessageBus

SOUND = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "com.example.paid"}
AT_NS = 1_767_225_600_123_456_789
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def order(body: object, **fields: object) -> Message:
    message = restored("m-1", "orders", body, AT_NS, None)
    return message.with_fields(fields) if fields else message


# Writing: other programs read it


def test_a_message_is_an_event() -> None:
    full = order({"n": 1}, type="com.example.order", source="/shop", subject="o-1", content_type="application/json")
    assert to_cloudevent(full.with_fields({"correlation_id": "c", "traceparent": TRACE}).with_priority(3)) == {
        "specversion": "1.0",
        "id": "m-1",
        "source": "/shop",
        "type": "com.example.order",
        "subject": "o-1",
        "time": "2026-01-01T00:00:00.123456789Z",
        "datacontenttype": "application/json",
        "data": {"n": 1},
        "correlationid": "c",
        "traceparent": TRACE,
        "priority": 3,
        "unibus": '{"channel":"orders"}',
    }


def test_a_bare_message_has_what_an_event_must_have() -> None:
    event = to_cloudevent(order(None))
    assert (event["source"], event["type"], "data" in event) == ("/unibus", "orders", False)
    assert to_cloudevent(order(None), source="urn:shop")["source"] == "urn:shop"
    back = from_cloudevent(event)
    assert (back.source, back.type, back.channel, back.body) == (None, None, "orders", None)


def test_what_an_attribute_cannot_hold_stands_aside() -> None:
    headers = {
        "tenant": "a",
        "urgent": True,
        "retries": 3,
        "X-Id": UUID(int=5),
        "weight": 1.5,
        "line": "a\nb",
        "id": "x",
    }
    message = order(b"\x00\x01", headers=headers, source="the shop", subject="two\nlines")
    event = to_cloudevent(message)
    assert {name: event.get(name) for name in headers} == {
        **dict.fromkeys(headers),
        "tenant": "a",
        "urgent": True,
        "retries": 3,
        "id": "m-1",
    }
    assert (event["source"], "subject" in event, event["data_base64"]) == ("the%20shop", False, "AAE=")
    back = from_cloudevent(json.dumps(event))
    assert (back.headers, back.source, back.subject, back.body) == (headers, "the shop", "two\nlines", b"\x00\x01")


def test_times_are_extensions_too() -> None:
    later = datetime(2030, 1, 1, tzinfo=UTC)
    event = to_cloudevent(order(1, ttl=timedelta(seconds=1), scheduled_at=later))
    assert (event["expirytime"], event["scheduledat"]) == ("2026-01-01T00:00:01.123456789Z", "2030-01-01T00:00:00Z")
    back = from_cloudevent(event)
    assert back.ttl == 1.0
    assert back.properties is not None
    assert back.properties.scheduled_at_ns == later.timestamp() * 1e9


def test_an_expiry_in_the_past_is_a_ttl_that_is_over() -> None:
    expired = from_cloudevent({**SOUND, "time": "2026-01-01T00:00:00Z", "expirytime": "2025-01-01T00:00:00Z"})
    assert expired.properties is not None
    assert expired.properties.ttl_ns == 1


def test_no_id_is_no_event() -> None:
    with pytest.raises(SerializationFailed):
        to_cloudevent(restored("", "orders", None, 0, None))


def test_serialized_data_has_its_content_type() -> None:
    body = Serialized(SerializationFormat.MESSAGE_PACK, b"\x01")
    event = to_cloudevent(order(body))
    assert (event["datacontenttype"], event["data_base64"]) == ("application/vnd.msgpack", "AQ==")
    back = from_cloudevent(event)
    assert (back.body, back.content_type) == (body, None)


# Reading: other programs wrote it


def test_an_event_from_elsewhere_goes_to_the_channel_of_its_type() -> None:
    assert from_cloudevent(SOUND).channel == "com.example.paid"
    assert from_cloudevent(SOUND, "payments").channel == "payments"


def test_an_extension_is_a_header_and_null_is_nothing() -> None:
    message = from_cloudevent({**SOUND, "tenant": "a", "level": 3, "ok": False, "gone": None, "dataschema": "urn:s"})
    assert message.headers == {"tenant": "a", "level": 3, "ok": False, "dataschema": "urn:s"}


def test_a_priority_in_other_terms_is_a_header() -> None:
    assert from_cloudevent({**SOUND, "priority": "25"}).priority == 25
    for value in ("high", 300, True):
        message = from_cloudevent({**SOUND, "priority": value})
        assert (message.priority, message.headers["priority"]) == (50, value)


def test_an_event_cannot_choose_its_place() -> None:
    place = '{"sequence": 5, "delivery_count": 2, "expires_ns": 3}'
    message = from_cloudevent({**SOUND, "unibus": place})
    assert (message.sequence, message.delivery_count, message.expires_ns) == (0, 0, 0)


def test_an_event_is_published() -> None:
    got: list[Message] = []
    with MessageBus() as bus:
        bus.subscribe("com.example.paid", got.append)
        bus.publish(from_cloudevent({**SOUND, "data": {"sum": 3}}))
    assert [(message.id, message.source, message.body) for message in got] == [("7", "/shop", {"sum": 3})]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"specversion": "0.3"}, "specversion must be '1.0', got '0.3' (only 1.0"),
        ({"specversion": None}, "specversion must be '1.0', got None (the value may not be"),
        ({"id": ""}, "id must be a str that is not empty, got ''"),
        ({"id": 5}, "id must be a str that is not empty, got 5"),
        ({"source": None}, "source must be a str that is not empty, got None"),
        ({"type": ["t"]}, "type must be a str that is not empty, got ['t']"),
        ({"Tenant": "a"}, "'Tenant' is not a valid attribute name"),
        ({"my_ext": "a"}, "'my_ext' is not a valid attribute name"),
        ({"tenant": 1.5}, "attribute tenant has the value 1.5"),
        ({"tenant": {"a": 1}}, "attribute tenant has the value"),
        ({"tenant": 2**31}, "attribute tenant has the value 2147483648"),
        ({"tenant": "a\nb"}, "attribute tenant has the value 'a\\nb'"),
        ({"time": "yesterday"}, "time is 'yesterday', which is not an instant (use RFC 3339"),
        ({"time": "2026-01-01T00:00:00"}, "is not an instant"),
        ({"time": datetime(2026, 1, 1)}, "is not an instant"),
        ({"time": "2026-13-01T00:00:00Z"}, "is not an instant"),
        ({"data": 1, "data_base64": "AA=="}, "has both data and data_base64"),
        ({"data_base64": "%%"}, "the event cannot become a message"),
        ({"data_base64": 5}, "the event cannot become a message"),
        ({"data": b"raw"}, "put bytes into data_base64"),
        ({"unibus": "theirs"}, "the extension unibus cannot be decoded"),
        ({"unibus": '{"colour": "red"}'}, "the event cannot become a message"),
    ],
)
def test_what_is_wrong_with_an_event_is_named(change: dict[str, object], text: str) -> None:
    with pytest.raises(CloudEventInvalid) as refused:
        from_cloudevent({**SOUND, **change})
    assert text in str(refused.value)
    assert isinstance(refused.value, DecodeError)


def test_times_of_all_kinds_are_read() -> None:
    same = ["2026-01-01T01:00:00.5+01:00", "2026-01-01t00:00:00.500z", "2026-01-01T00:00:00.5000000009Z"]
    assert {from_cloudevent({**SOUND, "time": text}).timestamp_ns for text in same} == {1_767_225_600_500_000_000}
    leap = from_cloudevent({**SOUND, "time": "2016-12-31T23:59:60Z"})
    assert leap.timestamp_ns == from_cloudevent({**SOUND, "time": "2017-01-01T00:00:00Z"}).timestamp_ns


# Binary mode


def test_a_message_is_headers_and_a_body() -> None:
    headers, body = to_cloudevent_binary(order({"n": 1}, type="t", source="/s", subject="Euro € 😀").with_priority(3))
    assert headers == {
        "ce-specversion": "1.0",
        "ce-id": "m-1",
        "ce-source": "/s",
        "ce-type": "t",
        "ce-time": "2026-01-01T00:00:00.123456789Z",
        "ce-subject": "Euro%20%E2%82%AC%20%F0%9F%98%80",
        "ce-priority": "3",
        "content-type": "application/json",
        "ce-unibus": "{%22channel%22:%22orders%22,%22content_type%22:null}",
    }
    assert body == b'{"n":1}'


BINARY = {"ce-specversion": "1.0", "CE-ID": "7", "Ce-Source": "/shop", "ce-type": "t", "Host": "example.com"}


@pytest.mark.parametrize(
    ("content_type", "body", "read"),
    [
        (None, b"", None),
        (None, b"x", b"x"),
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("application/vnd.shop+json; charset=utf-8", b"[1]", [1]),
        ("application/json", b"", None),
        ("text/plain", "grüß".encode(), "grüß"),
        ("text/plain; charset=latin-1", b"\xff", b"\xff"),
        ("image/png", b"\x89", b"\x89"),
    ],
)
def test_a_body_is_read_by_its_content_type(content_type: str | None, body: bytes, read: object) -> None:
    headers = BINARY if content_type is None else {**BINARY, "Content-Type": content_type}
    message = from_cloudevent_binary(headers, body)
    assert (message.id, message.body, message.content_type, message.headers) == ("7", read, content_type, {})


@pytest.mark.parametrize(
    ("change", "body", "text"),
    [
        ({"ce-x": "50%"}, b"", "ce-x has a % without two hexadecimal digits"),
        ({"ce-x": "%C0%A0"}, b"", "the percent escapes of ce-x are not valid UTF-8"),
        ({"ce-my-ext": "a"}, b"", "'my-ext' is not a valid attribute name"),
        ({"ce-data": "a"}, b"", "'data' is not a valid attribute name"),
        ({"ce-type": ""}, b"", "type must be a str that is not empty, got ''"),
        ({"content-type": "application/json"}, b"{", "does not match its content type"),
    ],
)
def test_what_is_wrong_with_headers_is_named(change: dict[str, str], body: bytes, text: str) -> None:
    with pytest.raises(CloudEventInvalid) as refused:
        from_cloudevent_binary({**BINARY, **change}, body)
    assert text in str(refused.value)


def test_quotes_around_a_header_are_taken_off() -> None:
    assert from_cloudevent_binary({**BINARY, "ce-subject": r'"a \"b\" %25"'}, b"").subject == 'a "b" %'


# The SDK of the CloudEvents project

BODIES = [{"n": [1, None, "ü"]}, "text", b"\x00\xff", None]
FIELDS = {"type": "t", "subject": "ü 1", "correlation_id": "c-1", "traceparent": TRACE, "headers": {"tenant": "a"}}


@pytest.mark.parametrize("body", BODIES, ids=["json", "text", "bytes", "nothing"])
def test_the_sdk_reads_what_we_write(body: object) -> None:
    message = order(body, **FIELDS).with_priority(3)
    structured = HTTPMessage(
        {"content-type": "application/cloudevents+json"}, json.dumps(to_cloudevent(message)).encode()
    )
    binary = HTTPMessage(*to_cloudevent_binary(message))
    for sent in (structured, binary):
        event = from_http_event(sent)
        assert (event.get_id(), event.get_type(), event.get_subject()) == ("m-1", "t", "ü 1")
        assert event.get_time() == datetime(2026, 1, 1, 0, 0, 0, 123_456, UTC)
        extensions = [event.get_extension(name) for name in ("correlationid", "traceparent", "tenant")]
        assert extensions == ["c-1", TRACE, "a"]
        assert str(event.get_extension("priority")) == "3"
        assert event.get_data() == body


@pytest.mark.parametrize("body", BODIES, ids=["json", "text", "bytes", "nothing"])
def test_we_read_what_the_sdk_writes(body: object) -> None:
    at = datetime(2026, 1, 1, 0, 0, 0, 5, UTC)
    kinds = {dict: "application/json", str: "text/plain", bytes: "application/octet-stream"}
    attributes = {
        "id": "7",
        "source": "/s",
        "type": "t",
        "time": at,
        "subject": "ü %1",
        "tenant": "a",
        "correlationid": "c",
    }
    if body is not None:
        attributes["datacontenttype"] = kinds[type(body)]
    event = CloudEvent(attributes, body)  # type: ignore[arg-type]
    structured, binary = to_structured_event(event), to_binary_event(event)
    as_held = {**event.get_attributes(), **({} if isinstance(body, bytes) else {"data": body})}
    read = [from_cloudevent(structured.body), from_cloudevent_binary(binary.headers, binary.body)]
    for message in [*read, *([] if isinstance(body, bytes) else [from_cloudevent(as_held)])]:
        assert (message.id, message.source, message.type, message.subject) == ("7", "/s", "t", "ü %1")
        assert (message.headers, message.correlation_id, message.body) == ({"tenant": "a"}, "c", body)
        assert message.timestamp_ns == 1_767_225_600_000_005_000


@pytest.mark.parametrize("body", BODIES, ids=["json", "text", "bytes", "nothing"])
def test_a_message_survives_the_sdk(body: object) -> None:
    message = order(body, **FIELDS).with_headers({"X-Odd": 1.5})
    event = from_http_event(HTTPMessage(*to_cloudevent_binary(message)))
    back = from_cloudevent(to_structured_event(event).body)
    # The SDK holds time to the microsecond.
    assert (back.id, back.channel, back.body, back.headers) == ("m-1", "orders", body, {"tenant": "a", "X-Odd": 1.5})
