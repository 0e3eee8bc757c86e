"""Encodings under random messages and random bytes.

Equality alone would not notice that True became 1 or a Decimal a float, so `identical` compares types as well.
"""

import math
import random
import string
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.same_message import same_message
from unibus.core.codec.codec import decode, decode_json, encode, encode_json
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.message_properties import TEXT_FIELDS, Int32, MessageProperties
from unibus.core.envelope.payload import SerializationFormat, Serialized
from unibus.errors import DecodeError

Encode = Callable[[Message], bytes]
Decode = Callable[[bytes], Message]
PAIRS = [(encode, decode), (encode_json, decode_json)]

# What a message may hold

text = st.text(max_size=20)
counts = st.integers(0, 2**63 - 1) | st.integers(0, 3)
offsets = st.timedeltas(-timedelta(hours=23, minutes=59), timedelta(hours=23, minutes=59))
instants = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC) | offsets.map(timezone))

plain_values = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | text
typed_values = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(Int32),
    st.decimals(),
    st.binary(max_size=20),
    st.uuids(),
    instants,
    st.timedeltas(),
)
header_names = st.text(min_size=1, max_size=10)
headers = st.dictionaries(header_names, plain_values, max_size=6) | st.dictionaries(
    header_names, plain_values | typed_values, max_size=6
)

zoned_times = instants.map(datetime.timetz)
scalars = plain_values | typed_values | st.integers() | st.dates() | st.times() | zoned_times | st.datetimes()
# A signalling NaN cannot be hashed.
hashable_scalars = scalars.filter(lambda value: not isinstance(value, Decimal) or not value.is_snan())
hashables = st.recursive(
    hashable_scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=2), max_leaves=4
)
keys = text | st.sampled_from(["$uuid", "$map", "$tuple", "$"])
json_bodies = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
typed_bodies = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(hashables, inner, max_size=3),
        st.sets(hashables, max_size=3),
        st.frozensets(hashables, max_size=3),
    ),
    max_leaves=12,
)
serialized = st.builds(Serialized, st.sampled_from(SerializationFormat), st.binary(max_size=50))
bodies = json_bodies | typed_bodies | st.binary(max_size=300) | serialized


@st.composite
def colds(draw: st.DrawFn) -> MessageProperties:
    properties = MessageProperties(draw(headers), draw(st.dictionaries(text, text, max_size=3)))
    for name in draw(st.sets(st.sampled_from(TEXT_FIELDS), max_size=5)):
        setattr(properties, name, draw(text))
    properties.ttl_ns = draw(st.just(0) | counts)
    properties.scheduled_at_ns = draw(st.just(0) | counts)
    return properties


@st.composite
def messages(draw: st.DrawFn) -> Message:
    stamp = draw(st.integers(-(2**63), 2**63 - 1))
    message = restored(draw(text), draw(text), draw(bodies), stamp, draw(st.none() | colds()))
    message.priority = draw(st.integers(0, 255))
    message.sequence = draw(counts)
    message.expires_ns = draw(counts)
    message.delivery_count = draw(counts)
    return message


def identical(one: object, other: object) -> bool:
    """Equal in value, type and order, where equality is too kind (True == 1) or too strict (nan != nan)."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    if isinstance(one, Decimal):
        return str(one) == str(other)
    if isinstance(one, datetime) and isinstance(other, datetime):
        return one == other and one.utcoffset() == other.utcoffset()
    if isinstance(one, dict) and isinstance(other, dict):
        return identical(list(one.items()), list(other.items()))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(identical, one, other))
    if isinstance(one, (set, frozenset)) and isinstance(other, (set, frozenset)):
        return len(one) == len(other) and all(any(identical(item, twin) for twin in other) for item in one)
    return one == other


def parts(message: Message) -> list[object]:
    properties = message.properties or MessageProperties()
    place = [message.sequence, message.priority, message.expires_ns, message.delivery_count]
    return [message.id, message.channel, message.timestamp_ns, *place, message.body, *properties.as_tuple()]


# Nothing is lost


@pytest.mark.parametrize(("write", "read"), PAIRS, ids=["msgpack", "json"])
def test_a_message_comes_back_as_it_was(write: Encode, read: Decode) -> None:
    @settings(max_examples=200)
    @given(messages())
    @example(restored("", "", {"$map": {"$tuple": []}}, 0, None))
    @example(restored("", "", datetime(2000, 1, 1, tzinfo=timezone(timedelta(microseconds=1))), 0, None))
    def check(message: Message) -> None:
        assert identical(parts(read(write(message))), parts(message))

    check()


sane_headers = st.dictionaries(header_names, plain_values.filter(lambda value: value == value), max_size=4)


@settings(max_examples=100)
@given(json_bodies, sane_headers)
def test_both_encodings_agree(body: object, plain: dict[str, object]) -> None:
    message = restored("i", "c", body, 1, None).with_fields({"headers": plain})
    assert same_message(decode(encode(message)), message)
    assert same_message(decode_json(encode_json(message)), message)


# Hostile bytes


def accepts_or_refuses(read: Decode, data: bytes) -> None:
    """Anything but a message or a DecodeError fails the test; what was accepted is a message that can be written."""
    try:
        message = read(data)
    except DecodeError:
        return
    assert isinstance(message, Message)
    assert identical(parts(decode(encode(message))), parts(message))


STARTS = [b"", b"\x97\x11", b"\x98\x12", b"\x9a\x11", b"\x9a\x12", b'{"unibus":1,']


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_random_bytes_are_refused_cleanly(data: bytes) -> None:
    for start in STARTS:
        accepts_or_refuses(decode, start + data)
        accepts_or_refuses(decode_json, start + data)


def altered(raw: bytes, chance: random.Random) -> bytes:
    """One to four of: another byte, another bit, an insertion, a repetition, a cut."""
    data = bytearray(raw)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data))
        change = chance.randrange(5)
        if change == 0:
            data[at] = chance.randrange(256)
        elif change == 1:
            data[at] ^= 1 << chance.randrange(8)
        elif change == 2:
            data.insert(at, chance.randrange(256))
        elif change == 3:
            data[at:at] = data[at : at + 8]
        elif len(data) > 10:
            del data[at : at + chance.randint(1, 8)]
    return bytes(data)


@settings(max_examples=100)
@given(messages(), st.integers(0, 2**32))
def test_altered_encodings_are_read_or_refused_cleanly(message: Message, seed: int) -> None:
    chance = random.Random(seed)
    for write, read in PAIRS:
        raw = write(message)
        for _ in range(40):
            accepts_or_refuses(read, altered(raw, chance))


SCALAR_TAGS = "$int $float $bytes $decimal $uuid $datetime $date $time $timedelta $int32"
tags = st.sampled_from(f"{SCALAR_TAGS} $tuple $set $frozenset $map $unknown".split())
extensions = st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=12))
anything = st.recursive(
    plain_values
    | st.binary(max_size=9)
    | st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=12)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text | tags, inner, max_size=2),
    max_leaves=6,
)
hot_rows = st.tuples(st.integers(0x10, 0x1F), anything, text, text, counts, st.integers(0, 255), counts)
masks = st.integers(-1, 2**24) | st.integers(0, 255)


@settings(max_examples=300)
@given(hot_rows, anything, masks, st.lists(anything, max_size=3))
def test_rows_with_anything_in_any_place_are_read_or_refused_cleanly(
    row: tuple[object, ...], extra: object, mask: int, values: object
) -> None:
    for written in (row, (*row, extra), (*row, {}, mask, values), (*row, extra, mask, values)):
        accepts_or_refuses(decode, msgspec.msgpack.encode(written))


names = st.sampled_from([*TEXT_FIELDS, "sequence", "priority", "expires_ns", "headers", "trace", "ttl_ns", "kind"])


@settings(max_examples=300)
@given(anything, st.dictionaries(names, anything | st.sampled_from(["bytes", "serialized/rkyv"]), max_size=3))
def test_documents_with_anything_in_any_field_are_read_or_refused_cleanly(
    body: object, changes: dict[str, object]
) -> None:
    try:
        written = msgspec.json.encode(
            {"unibus": 1, "id": "i", "channel": "c", "kind": "tagged", "body": body, **changes}
        )
    except TypeError:
        return  # JSON has no Ext.
    accepts_or_refuses(decode_json, written)


@settings(max_examples=300)
@given(tags, st.text(alphabet=string.digits + ":-+TZ. xeE", max_size=30) | st.text(max_size=10))
def test_text_behind_a_tag_is_read_or_refused_cleanly(tag: str, content: str) -> None:
    accepts_or_refuses(decode, msgspec.msgpack.encode((0x12, {tag: content}, "i", "c", 0, 50, 0)))
