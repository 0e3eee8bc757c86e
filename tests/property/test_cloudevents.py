"""Any message there and back through CloudEvents, in both modes, and any event or rubbish in."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.property.test_codec import identical, messages, parts
from unibus.bus.cloudevents.events import from_cloudevent, from_cloudevent_binary, to_cloudevent, to_cloudevent_binary
from unibus.bus.cloudevents.text import header_text, instant_ns, instant_text, is_attribute_name, percent_encoded
from unibus.core.codec.codec import decode_json, encode_json
from unibus.core.envelope.message import Message, restored
from unibus.errors import CloudEventInvalid, SerializationFailed

CORE = {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data", "data_base64"}


named = messages().filter(lambda message: message.id != "")


def unplaced(message: Message) -> Message:
    """As an encoding gives it back, without its place on the channel."""
    other = decode_json(encode_json(message)).fresh()
    other.expires_ns = 0
    return other


@given(named)
def test_a_message_comes_back_from_its_event(message: Message) -> None:
    event = to_cloudevent(message)
    wire = json.dumps(event)
    assert all(is_attribute_name(name) or name == "data_base64" for name in event)
    assert all(isinstance(value, (str, int)) for name, value in event.items() if name != "data")
    for form in (event, wire, wire.encode()):
        back = from_cloudevent(form)
        assert identical(parts(back), parts(unplaced(message)))


@given(named)
def test_a_message_comes_back_from_its_headers_and_body(message: Message) -> None:
    headers, body = to_cloudevent_binary(message)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    back = from_cloudevent_binary({name.title(): value for name, value in headers.items()}, body)
    assert identical(parts(back), parts(unplaced(message)))


attribute_names = st.sampled_from(sorted(CORE | {"unibus", "priority", "expirytime", "traceparent"})) | st.text()
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
odd_values = json_values | st.binary(max_size=4) | st.datetimes() | st.sampled_from(['{"kind":"tagged"}', '{"id":3}'])
sound = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


@given(st.dictionaries(attribute_names, odd_values, max_size=5))
@example({"unibus": '{"sequence": 9, "delivery_count": 4}'})
def test_any_mapping_is_a_message_or_a_named_error(extra: dict[str, object]) -> None:
    try:
        message = from_cloudevent({**sound, **extra})
    except CloudEventInvalid:
        return
    assert (message.sequence, message.delivery_count, message.expires_ns) == (0, 0, 0)


@given(st.binary(max_size=60) | st.text(max_size=60) | st.integers())
def test_rubbish_is_a_named_error(rubbish: object) -> None:
    with pytest.raises(CloudEventInvalid):
        from_cloudevent(rubbish)


@given(
    st.dictionaries(st.text(max_size=8).map("ce-".__add__), st.text(max_size=20), max_size=4), st.binary(max_size=20)
)
def test_any_headers_are_a_message_or_a_named_error(extra: dict[str, str], body: bytes) -> None:
    headers = {f"ce-{name}": value for name, value in sound.items()}
    try:
        from_cloudevent_binary({**headers, **extra}, body)
    except CloudEventInvalid:
        return


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_a_header_escapes_any_text(text: str) -> None:
    escaped = percent_encoded(text)
    assert escaped.isascii()
    assert " " not in escaped
    assert header_text("x", escaped) == text


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_instant_keeps_its_nanoseconds(instant: int) -> None:
    assert instant_ns("time", instant_text(instant)) == instant


def test_an_event_without_id_cannot_be_written() -> None:
    with pytest.raises(SerializationFailed):
        to_cloudevent(restored("", "orders", None, 0, None))
