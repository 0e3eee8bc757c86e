"""Untrusted bytes: decoding returns a message or raises a DecodeError with a hint, never anything else."""

import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest

from unibus.core.codec.codec import decode, decode_json, encode, encode_json
from unibus.core.envelope.message import Message, restored
from unibus.errors import DecodeError
from unibus.limits import DECODE_DEPTH_MAX, HEADER_COUNT_MAX

Encode = Callable[[Message], bytes]
Decode = Callable[[bytes], Message]

PAIRS = [(encode, decode), (encode_json, decode_json)]
BOTH = pytest.mark.parametrize(("write", "read"), PAIRS, ids=["msgpack", "json"])


def samples() -> list[Message]:
    """One of each shape of row."""
    plain = restored("id-1", "orders", "body", 1_700_000_000_000_000_000, None)
    headed = plain.with_headers({"a": 1})
    return [plain, headed, headed.with_fields({"subject": "s", "ttl": 1, "trace": {"k": "v"}})]


def refusal(read: Decode, data: object) -> DecodeError:
    with pytest.raises(DecodeError) as refused:
        read(data)  # type: ignore[arg-type]
    assert refused.value.code == "decode_error"
    assert not refused.value.retryable
    return refused.value


@pytest.mark.parametrize("read", [decode, decode_json])
@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x91", b"\x97", b"\xff" * 50, b"[]", b"null", b"{}", b"\xc1", b"\x80\x04."]
)
def test_foreign_bytes_are_refused(read: Decode, data: bytes) -> None:
    assert refusal(read, data).hint


@pytest.mark.parametrize("data", [5, None, object()])
def test_what_is_not_bytes_is_refused(data: object) -> None:
    for read in (decode, decode_json):
        assert "from bytes" in refusal(read, data).what


def test_the_hint_says_which_reader_to_use() -> None:
    assert "decode_json" in refusal(decode, encode_json(samples()[0])).hint


@BOTH
def test_every_cut_is_noticed(write: Encode, read: Decode) -> None:
    for message in samples():
        data = write(message)
        for length in range(len(data)):
            refusal(read, data[:length])


@BOTH
def test_bytes_after_the_end_are_noticed(write: Encode, read: Decode) -> None:
    for message in samples():
        refusal(read, write(message) + b"\x00")
        refusal(read, write(message) * 2)


def test_a_newer_version_is_told_as_such() -> None:
    newer = b"\x95\x21\x01\x02\x03\x04"
    refused = refusal(decode, newer)
    assert "version 2" in refused.what
    assert "upgrade" in refused.hint
    refused = refusal(decode_json, b'{"unibus":2,"id":"x","field of the future":[]}')
    assert "version 2" in refused.what
    assert "upgrade" in refused.hint


def row(*values: object) -> bytes:
    return msgspec.msgpack.encode(values)


HOT = (0x11, 1, "i", "c", 0, 50, 0)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, 0x17),  # A kind that is not known.
        (0, 0x10),  # Bytes, but the body is a number.
        (0, 0x13),
        (2, 5),
        (2, None),
        (2, b"i"),
        (3, 5),
        (4, -1),
        (4, 2**63),
        (4, 2**64 - 1),
        (4, True),
        (4, 1.0),
        (4, "1"),
        (5, -1),
        (5, 256),
        (5, None),
        (6, 2**63),
        (6, 1.5),
    ],
)
def test_every_place_of_the_row_is_checked(at: int, value: object) -> None:
    assert decode(row(*HOT)).id == "i"
    values = list(HOT)
    values[at] = value
    refusal(decode, row(*values))


@pytest.mark.parametrize(
    "headers", [{"": 1}, {"a": 2**63}, {"a": b"x"}, {"a": [1]}, {1: 1}, {"a": {"$uuid": "x"}}, [1], None, "x"]
)
def test_plain_headers_are_checked(headers: object) -> None:
    assert decode(row(*HOT, {"a": 1})).headers == {"a": 1}
    refusal(decode, row(*HOT, headers))
    refusal(decode, row(*HOT, headers, 0, []))


def test_the_number_of_headers_is_bounded() -> None:
    many = {f"h{n}": n for n in range(HEADER_COUNT_MAX + 1)}
    refusal(decode, row(*HOT, many))
    refusal(decode, row(*HOT, {}, 4, [many]))
    refusal(decode_json, msgspec.json.encode({"unibus": 1, "id": "i", "channel": "c", "headers": many}))


@pytest.mark.parametrize(
    ("mask", "values"),
    [
        (0, [1]),
        (1, []),
        (-1, []),
        (1 << 23, ["x"]),
        (1 << 23, []),
        (2**64 - 1, []),
        (1, [-1]),
        (1, [2**63]),
        (1, [True]),
        (2, ["1"]),
        (4, [1]),
        (4, [{"": 1}]),
        (4, [{"a": [1]}]),
        (4, [{"a": {"$list": "x"}}]),
        (4, [{"a": {"$datetime": "2024-01-01"}}]),  # A header's time needs an offset.
        (4, [{1: 1}]),
        (8, [{"k": 1}]),
        (8, [{1: "v"}]),
        (8, [[1]]),
        (16, [None]),
        (64, [1]),
        (64, [None]),
        (64 | 128, ["x"]),
        (64, ["x", "y"]),
    ],
)
def test_the_rare_values_are_checked(mask: int, values: list[object]) -> None:
    refusal(decode, row(*HOT, {}, mask, values))


@pytest.mark.parametrize(
    "body",
    [
        {"$uuid": "short"},
        {"$uuid": 5},
        {"$decimal": "x"},
        {"$decimal": None},
        {"$datetime": "yesterday"},
        {"$date": "2024-02-30"},
        {"$time": "25:00"},
        {"$timedelta": "1 2"},
        {"$timedelta": "999999999999 0 0"},
        {"$timedelta": "9" * 5_000 + " 0 0"},
        {"$int": "0xg"},
        {"$int": ""},
        {"$int32": str(2**31)},
        {"$float": "x"},
        {"$bytes": "not base64"},
        {"$bytes": "eA"},
        {"$tuple": 1},
        {"$set": [[1]]},
        {"$set": [{"$decimal": "sNaN"}]},
        {"$frozenset": {}},
        {"$map": [1]},
        {"$map": [[1]]},
        {"$map": [[1, 2, 3]]},
        {"$map": [[[1], 2]]},
        {"$unknown": 1},
        {"$": 1},
        {"a": [{"$": 1}]},
    ],
    ids=str,
)
def test_bad_tags_are_refused(body: object) -> None:
    refusal(decode, row(0x12, body, *HOT[2:]))
    document = {"unibus": 1, "id": "i", "channel": "c", "kind": "tagged", "body": body}
    refusal(decode_json, msgspec.json.encode(document))


@pytest.mark.parametrize(
    "body", [{1: 2}, {b"k": 1}, {(1, 2): 3}, msgspec.msgpack.Ext(5, b"x"), datetime(2024, 1, 1, tzinfo=UTC)]
)
def test_what_only_msgpack_has_is_no_body(body: object) -> None:
    refusal(decode, row(0x11, body, *HOT[2:]))
    refusal(decode, row(0x12, [body], *HOT[2:]))


@pytest.mark.parametrize("kind", [0x11, 0x12])
@pytest.mark.parametrize("depth", [DECODE_DEPTH_MAX + 1, 900, 100_000])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1k", b"\x81\x91"])
def test_deep_nesting_is_refused(kind: int, depth: int, opening: bytes) -> None:
    refusal(decode, bytes([0x97, kind]) + opening * depth + b"\x01" * depth)


@pytest.mark.parametrize("kind", ["json", "tagged"])
@pytest.mark.parametrize("depth", [DECODE_DEPTH_MAX + 1, 900, 100_000])
def test_deep_nesting_in_json_is_refused(kind: str, depth: int) -> None:
    start = f'{{"unibus":1,"id":"i","channel":"c","kind":"{kind}","body":'.encode()
    refusal(decode_json, start + b"[" * depth + b"]" * depth + b"}")
    refusal(decode_json, start + b'{"$tuple":[' * depth + b"]}" * depth + b"}")


@pytest.mark.parametrize(
    "length", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"]
)
def test_a_huge_length_allocates_nothing(length: bytes) -> None:
    # An array of 4 G items would take 32 GB, and seconds to free.
    whole = row(*HOT)
    tracemalloc.start()
    for place in range(2, len(whole)):
        refusal(decode, whole[:place] + length)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_numbers_of_any_length_are_read_in_hexadecimal_only() -> None:
    # Reading decimal digits takes time that grows with the square of their number.
    refusal(decode_json, b'{"unibus":1,"id":"i","channel":"c","body":' + b"9" * 10_000 + b"}")
    assert decode(row(0x12, {"$int": "0x" + "f" * 1_000_000}, *HOT[2:])).body == 16**1_000_000 - 1


@pytest.mark.parametrize("where", ["id", "body", "header"])
def test_text_is_strict_utf_8(where: str) -> None:
    marked = restored("@@" if where == "id" else "i", "c", "@@" if where == "body" else 1, 1, None)
    marked = marked.with_headers({"h": "@@" if where == "header" else "x"})
    for bad in (b"\xff\xfe", b"\xc0\x80", b"\xed\xa0"):
        for write, read in PAIRS:
            refusal(read, write(marked).replace(b"@@", bad))


@pytest.mark.parametrize(
    "change",
    [
        {"unknown": 1},
        {"kind": "pickle"},
        {"kind": "bytes", "body": 5},
        {"kind": "bytes", "body": "no base64!"},
        {"kind": "serialized/json", "body": None},
        {"sequence": -1},
        {"sequence": 2**63},
        {"sequence": 10**30},
        {"sequence": "1"},
        {"priority": 256},
        {"priority": None},
        {"timestamp_ns": 2**63},
        {"timestamp_ns": 1.5},
        {"expires_ns": -1},
        {"delivery_count": 2**64},
        {"headers": {"": 1}},
        {"headers": {"a": [1]}},
        {"headers": {"a": {}}},
        {"headers": {"a": 2**63}},
        {"headers": []},
        {"trace": {"k": 1}},
        {"ttl_ns": -1},
        {"scheduled_at_ns": 0.5},
        {"subject": 1},
        {"id": None},
        {"channel": 1},
        {"unibus": "1"},
    ],
    ids=str,
)
def test_every_field_of_a_document_is_checked(change: dict[str, object]) -> None:
    document: dict[str, object] = {"unibus": 1, "id": "i", "channel": "c"}
    assert decode_json(msgspec.json.encode(document)).id == "i"
    refusal(decode_json, msgspec.json.encode({**document, **change}))


def test_an_error_repeats_little_of_what_it_was_given() -> None:
    for read, data in (
        (decode, row(0x12, {"$uuid": "x" * 100_000}, *HOT[2:])),
        (decode, row(0x12, {"$" + "x" * 100_000: 1}, *HOT[2:])),
        (decode_json, b'{"unibus":1,"id":"i","channel":"c","kind":"' + b"x" * 100_000 + b'"}'),
    ):
        assert len(str(refusal(read, data))) < 500
