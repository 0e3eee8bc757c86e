"""The three kinds of payload and their accessors."""

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import pytest

from unibus.core.envelope.message import Message
from unibus.core.envelope.payload import Payload, SerializationFormat, Serialized, payload_kind
from unibus.errors import SerializationFailed


class Order(msgspec.Struct):
    number: int
    price: float


@dataclass
class Parcel:
    weight: float


def test_bytes_are_shared_not_copied() -> None:
    data = b"x" * 1_000
    payload = Payload.bytes(data)
    assert payload.kind == "bytes"
    assert payload.as_bytes() is data
    assert payload.as_json() is None


@pytest.mark.parametrize("data", [bytearray(b"ab"), memoryview(b"ab")])
def test_other_buffers_are_bytes_too(data: bytearray | memoryview) -> None:
    assert Payload.bytes(data).kind == "bytes"
    assert Payload.bytes(data).as_bytes() is data


def test_json_has_no_bytes() -> None:
    payload = Payload.json({"n": [1, 2.5, None, True]})
    assert payload.kind == "json"
    assert payload.as_json() == {"n": [1, 2.5, None, True]}
    assert payload.as_bytes() is None


def test_json_takes_what_json_can_express() -> None:
    assert Payload.json(Order(1, 9.5)).as_json() == {"number": 1, "price": 9.5}
    assert Payload.json([Parcel(2.5)]).as_json() == [{"weight": 2.5}]
    assert Payload.json({1: datetime(2024, 1, 2, tzinfo=UTC)}).as_json() == {"1": "2024-01-02T00:00:00Z"}


def endless() -> list[object]:
    items: list[object] = []
    items.append(items)
    return items


@pytest.mark.parametrize("value", [object(), 1j, {(1, 2): 3}, [print], endless()])
def test_json_refuses_the_rest(value: object) -> None:
    with pytest.raises(SerializationFailed) as refused:
        Payload.json(value)
    assert refused.value.code == "serialization_failed"
    assert isinstance(refused.value, RuntimeError)  # As every error of a publish.


@pytest.mark.parametrize("format", list(SerializationFormat))
def test_serialized_data_keeps_its_format(format: SerializationFormat) -> None:
    payload = Payload.serialized(format, b"data")
    assert payload.kind == "serialized"
    assert payload.as_bytes() == b"data"
    assert payload.as_json() is None
    assert payload.value == Serialized(format, b"data")


def test_the_formats_are_the_first_designs() -> None:
    assert {format.name for format in SerializationFormat} == {"RKYV", "BINCODE", "JSON", "MESSAGE_PACK"}


def test_payloads_are_equal_when_kind_and_content_are() -> None:
    assert Payload.bytes(b"a") == Payload.bytes(b"a")
    assert Payload.bytes(b"a") != Payload.serialized(SerializationFormat.JSON, b"a")
    assert Serialized(SerializationFormat.JSON, b"a") != Serialized(SerializationFormat.RKYV, b"a")
    assert len({Serialized(SerializationFormat.JSON, b"a"), Serialized(SerializationFormat.JSON, b"a")}) == 1
    assert len({Payload.bytes(b"a"), Payload.bytes(b"a")}) == 1


def test_a_message_takes_the_value_out_of_its_payload() -> None:
    data = b"abc"
    message = Message.new("c", Payload.bytes(data))
    assert message.body is data
    assert message.as_bytes() is data
    assert message.as_json() is None
    assert message.payload.kind == "bytes"


def test_any_object_counts_as_json_until_it_is_written() -> None:
    assert payload_kind(Order(1, 2.0)) == "json"
    assert payload_kind(None) == "json"


def test_what_is_shown_of_a_payload_is_not_its_content() -> None:
    assert repr(Payload.bytes(b"secret")) == "Payload(bytes)"
    assert "secret" not in repr(Serialized(SerializationFormat.JSON, b"secret"))
