"""The two encodings: lossless, stable on disk, and safe against hostile bytes."""

import enum
import math
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from tests.same_message import same_message
from unibus.core.codec.codec import decode, decode_json, encode, encode_json
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.message_properties import TEXT_FIELDS, Int32, MessageProperties
from unibus.core.envelope.payload import SerializationFormat, Serialized
from unibus.core.envelope.views import MessageId
from unibus.errors import HeaderInvalid, SerializationFailed
from unibus.limits import DECODE_DEPTH_MAX

Encode = Callable[[Message], bytes]
Decode = Callable[[bytes], Message]

PAIRS = [(encode, decode), (encode_json, decode_json)]
BOTH = pytest.mark.parametrize(("write", "read"), PAIRS, ids=["msgpack", "json"])


def message_with(body: object = None, **fields: object) -> Message:
    message = restored("id-1", "orders", body, 1_700_000_000_000_000_000, None)
    return message.with_fields(fields) if fields else message


def full() -> Message:
    """A message with something in every field."""
    properties = MessageProperties({"s": "text", "i": -5, "b": True, "f": 0.5, "n": None}, {"k": "v"})
    for name in TEXT_FIELDS:
        setattr(properties, name, f"{name} é")
    properties.ttl_ns, properties.scheduled_at_ns = 5, 6
    message = restored("id-1", "orders", {"n": [1, 2.5, None]}, 1_700_000_000_000_000_000, properties)
    message.priority, message.sequence, message.expires_ns, message.delivery_count = 255, 2**63 - 1, 3, 4
    return message


# Nothing is lost


@BOTH
def test_every_field_comes_back(write: Encode, read: Decode) -> None:
    assert same_message(read(write(full())), full())


@BOTH
@pytest.mark.parametrize("name", TEXT_FIELDS)
def test_each_text_field_comes_back_on_its_own(write: Encode, read: Decode, name: str) -> None:
    message = message_with(**{name: "text"})
    back = read(write(message))
    assert same_message(back, message)
    assert getattr(back.properties, name) == "text"


@BOTH
@pytest.mark.parametrize("name", ["sequence", "expires_ns", "delivery_count"])
def test_a_place_without_properties_makes_none(write: Encode, read: Decode, name: str) -> None:
    message = message_with("body")
    setattr(message, name, 7)
    back = read(write(message))
    assert getattr(back, name) == 7
    assert back.properties is None


@BOTH
def test_empty_text_is_not_absent_text(write: Encode, read: Decode) -> None:
    back = read(write(message_with(subject="", source=None)))
    assert (back.subject, back.source) == ("", None)


@BOTH
def test_the_smallest_and_largest_numbers_come_back(write: Encode, read: Decode) -> None:
    for priority, sequence, stamp in [(0, 0, 0), (255, 2**63 - 1, 2**63 - 1), (1, 1, -(2**63))]:
        message = restored("i", "c", None, stamp, None)
        message.priority, message.sequence = priority, sequence
        assert same_message(read(write(message)), message)


HEADERS = [
    True,
    False,
    None,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    Int32(7),
    Int32(-(2**31)),
    0.0,
    -0.0,
    1.0,
    5e-324,
    math.inf,
    -math.inf,
    Decimal("1.10"),
    Decimal("-Infinity"),
    Decimal("1E+999999"),
    "",
    "é\U0001f600\x00",
    "$uuid",
    b"",
    b"\x00\xff",
    UUID(int=2**127 + 5),
    datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    datetime(2024, 1, 1, tzinfo=timezone(-timedelta(hours=1, minutes=2, seconds=3, microseconds=4))),
    datetime(2000, 1, 1, tzinfo=timezone(timedelta(microseconds=1))),
    datetime(2000, 1, 1, tzinfo=timezone(-timedelta(microseconds=1))),
    timedelta.max,
    timedelta.min,
    timedelta(microseconds=-1),
]


@BOTH
@pytest.mark.parametrize("value", HEADERS, ids=repr)
def test_a_header_keeps_value_and_type(write: Encode, read: Decode, value: object) -> None:
    # Filters, storage and AMQP depend on it. Beside plain headers, and alone.
    for others in ({}, {"a": 1, "b": "x"}):
        back = read(write(message_with(headers={**others, "value": value})))
        assert list(back.headers) == [*others, "value"]
        kept = back.headers["value"]
        assert type(kept) is type(value)
        assert kept == value
        assert repr(kept) == repr(value)


@BOTH
def test_nan_comes_back_as_nan(write: Encode, read: Decode) -> None:
    back = read(write(message_with([math.nan], headers={"f": math.nan, "d": Decimal("NaN123")})))
    assert math.isnan(back.headers["f"])  # type: ignore[arg-type]
    assert isinstance(back.headers["f"], float)
    assert str(back.headers["d"]) == "NaN123"
    assert math.isnan(back.body[0])  # type: ignore[index]


@BOTH
def test_the_offset_of_a_time_is_kept(write: Encode, read: Decode) -> None:
    noon = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Madrid"))
    back = read(write(message_with(headers={"t": noon}))).headers["t"]
    assert isinstance(back, datetime)
    assert (back, back.hour, back.utcoffset()) == (noon, 12, timedelta(hours=2))


@BOTH
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\xff" * 100,
        *[Serialized(format, b"\x00data") for format in SerializationFormat],
        None,
        "",
        {},
        [],
        {"a": {"b": [1, "x", None, True, 2.5]}},
    ],
    ids=lambda body: repr(body)[:30],
)
def test_the_kind_of_the_payload_comes_back(write: Encode, read: Decode, body: object) -> None:
    # Bytes, JSON and serialized data are not mixed up.
    message = message_with(body)
    back = read(write(message))
    assert same_message(back, message)
    assert type(back.body) is type(body)
    assert back.payload.kind == message.payload.kind


@BOTH
def test_other_buffers_come_back_as_bytes(write: Encode, read: Decode) -> None:
    for body in (bytearray(b"abc"), memoryview(b"abc"), memoryview(b"aXbXcX")[::2]):
        assert read(write(message_with(body))).body == b"abc"


Point = namedtuple("Point", "x y")


@BOTH
@pytest.mark.parametrize(
    "value",
    [
        2**64 - 1,
        2**64,
        -(2**63) - 1,
        math.inf,
        b"nested",
        Decimal("0.1"),
        UUID(int=3),
        date(2024, 2, 29),
        datetime(2024, 1, 1),
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, 12, 30).time(),
        datetime(2024, 1, 1, 12, 30, tzinfo=timezone(timedelta(hours=-1))).timetz(),
        datetime(2024, 1, 1, 12, 30, tzinfo=timezone(timedelta(microseconds=5))).timetz(),
        timedelta(1, 2, 3),
        Int32(5),
        (),
        (1, (2, "x")),
        {1, 2},
        frozenset({"a"}),
        {1: "int", None: "none", (1, 2): "tuple", b"b": "bytes", 1.5: "float", "s": "text"},
        {"$uuid": "no uuid"},
        {"$map": [1]},
        {"$": 1, "$x": 2},
    ],
    ids=lambda value: repr(value)[:20],
)
def test_types_that_json_lacks_come_back_from_inside_of_a_body(write: Encode, read: Decode, value: object) -> None:
    for body in (value, [value], {"deep": [{"er": value}]}, {"tag": UUID(int=1), "value": value}):
        back = read(write(message_with(body))).body
        assert back == body
        assert repr(back) == repr(body)


@BOTH
def test_an_integer_of_any_size_comes_back(write: Encode, read: Decode) -> None:
    # Beyond the 4,300 digits that Python itself turns into decimal text.
    assert read(write(message_with([10**5_000, -(10**5_000)]))).body == [10**5_000, -(10**5_000)]


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    __slots__ = ()


class Order(msgspec.Struct, rename="camel"):
    order_id: int
    placed: datetime
    tags: frozenset[str]


@dataclass
class Parcel:
    owner: Name
    colour: Colour
    order: Order


@BOTH
def test_types_of_the_user_are_written_as_their_fields_and_come_back_by_annotation(write: Encode, read: Decode) -> None:
    routed = Parcel(Name("ada"), Colour.RED, Order(1, datetime(2024, 1, 1, tzinfo=UTC), frozenset({"x"})))
    back = read(write(message_with(routed))).body
    assert back == {
        "owner": "ada",
        "colour": "red",
        "order": {"orderId": 1, "placed": datetime(2024, 1, 1, tzinfo=UTC), "tags": frozenset({"x"})},
    }
    assert msgspec.convert(back["order"], Order) == routed.order  # type: ignore[index]


@BOTH
@pytest.mark.parametrize(
    ("given", "written"),
    [
        (Name("x"), "x"),
        (Level.HIGH, 3),
        (Colour.RED, "red"),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, {1: [2]}), {1: [2]}),
        (Point(1, 2), (1, 2)),
        ({Name("k"): Name("v")}, {"k": "v"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_subclass_is_written_as_its_base(write: Encode, read: Decode, given: object, written: object) -> None:
    back = read(write(message_with({"in": [given]}))).body
    assert back == {"in": [written]}
    assert type(back["in"][0]) is type(written)  # type: ignore[index]


@BOTH
def test_texts_of_a_subclass_are_texts(write: Encode, read: Decode) -> None:
    message = restored(MessageId("my-id"), Name("c"), Name("body"), 1, None)
    message = message.with_fields(
        {"subject": Name("s"), "headers": {Name("h"): Name("v")}, "trace": {Name("k"): Name("t")}}
    )
    back = read(write(message))
    assert same_message(back, message)
    assert {type(text) for text in (back.id, back.channel, back.body, back.subject, back.headers["h"])} == {str}


@BOTH
@pytest.mark.parametrize("value", [object(), 1j, print, [object()], {"a": {object()}}, {"k": range(3)}, type])
def test_what_no_tag_can_express_is_refused(write: Encode, read: Decode, value: object) -> None:
    with pytest.raises(SerializationFailed, match="payload holds") as refused:
        write(message_with(value))
    assert "bytes" in refused.value.hint


@BOTH
@pytest.mark.parametrize("field", ["id", "channel", "body", "header", "subject"])
def test_text_that_is_no_unicode_is_refused(write: Encode, read: Decode, field: str) -> None:
    lone = "\ud800"
    message = restored(lone if field == "id" else "i", lone if field == "channel" else "c", None, 1, None)
    if field == "body":
        message.body = [lone]
    elif field not in ("id", "channel"):
        message = message.with_fields({"headers": {"h": lone}} if field == "header" else {"subject": lone})
    with pytest.raises(SerializationFailed, match="surrogates"):
        write(message)


@BOTH
def test_a_body_that_contains_itself_is_refused(write: Encode, read: Decode) -> None:
    endless: list[object] = []
    endless.append(endless)
    table: dict[str, object] = {}
    table["self"] = table
    for body in (endless, table, (endless,)):
        with pytest.raises(SerializationFailed, match="deep"):
            write(message_with(body))


def nested(depth: int, innermost: object = 1) -> object:
    value = innermost
    for _ in range(depth):
        value = [value]
    return value


@BOTH
@pytest.mark.parametrize("innermost", [1, UUID(int=1)], ids=["plain", "tagged"])
def test_what_can_be_written_can_be_read_down_to_the_last_level(write: Encode, read: Decode, innermost: object) -> None:
    message = message_with(nested(DECODE_DEPTH_MAX, innermost))
    assert same_message(read(write(message)), message)
    with pytest.raises(SerializationFailed, match="deeper"):
        write(message_with(nested(DECODE_DEPTH_MAX + 1, innermost)))


@BOTH
@pytest.mark.parametrize("field", ["priority", "sequence", "expires_ns", "delivery_count"])
def test_what_could_not_be_read_is_not_written(write: Encode, read: Decode, field: str) -> None:
    for value in (-1, 256) if field == "priority" else (-1,):
        message = message_with()
        setattr(message, field, value)
        with pytest.raises(SerializationFailed):
            write(message)


@BOTH
@pytest.mark.parametrize("field", ["ttl_ns", "scheduled_at_ns"])
def test_negative_times_of_the_properties_are_not_written(write: Encode, read: Decode, field: str) -> None:
    message = message_with(subject="s")
    setattr(message.properties, field, -1)
    with pytest.raises(SerializationFailed):
        write(message)


@BOTH
@pytest.mark.parametrize("value", [[1], 2**63, 2**70, object()])
def test_a_header_that_slipped_in_unchecked_is_refused(write: Encode, read: Decode, value: object) -> None:
    message = message_with(headers={"a": 1})
    assert message.properties is not None
    message.properties.headers["b"] = value  # type: ignore[assignment]
    with pytest.raises(HeaderInvalid, match="'b'"):
        write(message)


@BOTH
def test_a_typed_header_that_slipped_in_keeps_its_type(write: Encode, read: Decode) -> None:
    message = message_with(headers={"a": 1})
    assert message.properties is not None
    message.properties.headers["b"] = UUID(int=1)
    assert read(write(message)).headers == {"a": 1, "b": UUID(int=1)}


# The bytes are on disks: a change of these is a new version


def test_the_msgpack_form_of_version_1() -> None:
    head = b"\xa4id-1\xa6orders"
    stamp = b"\xcf\x17\x97\x9c\xfe6*\x00\x00"
    assert encode(message_with(b"\x01")) == b"\x97\x10\xc4\x01\x01" + head + b"\x00\x32" + stamp
    assert encode(message_with("x")) == b"\x97\x11\xa1x" + head + b"\x00\x32" + stamp
    assert encode(message_with((1,))) == b"\x97\x12\x81\xa6$tuple\x91\x01" + head + b"\x00\x32" + stamp
    for number, format in enumerate(("rkyv", "bincode", "json", "msgpack")):
        body = Serialized(SerializationFormat(format), b"")
        assert encode(message_with(body))[:4] == bytes([0x97, 0x13 + number, 0xC4, 0])
    assert encode(message_with(1, headers={"a": 1})) == b"\x98\x11\x01" + head + b"\x00\x32" + stamp + b"\x81\xa1a\x01"
    assert encode(message_with(1, tx_id="t")) == (
        b"\x9a\x11\x01" + head + b"\x00\x32" + stamp + b"\x80\xce\x00\x20\x00\x00\x91\xa1t"
    )


def test_each_rare_field_has_its_bit() -> None:
    names = ["expires_ns", "delivery_count", "typed headers", "trace", "ttl_ns", "scheduled_at_ns", *TEXT_FIELDS]
    for bit, name in enumerate(names):
        message = message_with(subject="s")
        assert message.properties is not None
        message.properties.subject = None
        if name == "typed headers":
            message.properties.headers = {"h": UUID(int=1)}
        elif name == "trace":
            message.properties.trace = {"k": "v"}
        else:
            value = 1 if name.endswith("_ns") or name == "delivery_count" else "x"
            setattr(message if name in ("expires_ns", "delivery_count") else message.properties, name, value)
        assert msgspec.msgpack.decode(encode(message))[8] == 1 << bit, name


def test_the_json_form_of_version_1() -> None:
    assert encode_json(message_with({"n": 1})) == (
        b'{"unibus":1,"id":"id-1","channel":"orders","priority":50,"timestamp_ns":1700000000000000000,'
        b'"kind":"json","body":{"n":1}}'
    )
    headers = {"u": UUID(int=1), "i": Int32(1), "t": timedelta(1, 2, 3), "b": b"x", "n": 1}
    message = message_with(Serialized(SerializationFormat.RKYV, b"x"), headers=headers, subject="s", ttl=1)
    message.sequence, message.delivery_count = 3, 2
    assert msgspec.json.decode(encode_json(message)) == {
        "unibus": 1,
        "id": "id-1",
        "channel": "orders",
        "sequence": 3,
        "priority": 50,
        "timestamp_ns": 1_700_000_000_000_000_000,
        "kind": "serialized/rkyv",
        "body": "eA==",
        "delivery_count": 2,
        "headers": {
            "u": {"$uuid": "00000000000000000000000000000001"},
            "i": {"$int32": "1"},
            "t": {"$timedelta": "1 2 3"},
            "b": {"$bytes": "eA=="},
            "n": 1,
        },
        "ttl_ns": 1_000_000_000,
        "subject": "s",
    }


def test_a_document_written_by_hand_needs_little() -> None:
    message = decode_json('{"unibus": 1, "id": "x", "channel": "c", "body": {"$uuid": 1}}')
    assert (message.id, message.channel, message.priority, message.properties) == ("x", "c", 50, None)
    assert message.body == {"$uuid": 1}  # Not tagged: a dollar means nothing.


@pytest.mark.parametrize("buffer", [bytearray, memoryview])
def test_any_buffer_can_be_read(buffer: Callable[[bytes], bytearray | memoryview]) -> None:
    for write, read in PAIRS:
        assert same_message(read(buffer(write(full()))), full())
