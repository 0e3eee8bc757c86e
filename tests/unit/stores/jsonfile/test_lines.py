"""A change as a line of JSON: decoding gives the same change, and an altered line is detected."""

import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, get_type_hints
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unibus.core.codec.codec import decode, encode
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.envelope import overrides_of
from unibus.core.lifecycle.state.changes import Change, Copied, MessageRef, Passed, Sent
from unibus.errors import StoreVersion
from unibus.stores.jsonfile.forms import instant_of, instant_text
from unibus.stores.jsonfile.lines import CHANGES, is_whole, line_of, op_of, read_line, sealed

AT_NS = 1_760_000_000_123_456_789
MESSAGE = encode(Message.new("orders", {"n": 1, "text": "zwölf"}, 20))

VALUES: dict[Any, Any] = {
    int: 7,
    bool: True,
    str: 'te"xt\n',
    bytes: b"\x00\xff token",
    MessageRef: MessageRef("id-1", 3, "session", "correlation", "trace"),
    str | None: "some",
    bytes | None: b"\x80",
    list[object]: [None, True, AT_NS, ["orders", 7, "id-1", False, True, False, "D2"]],
}


def sample(kind: Any) -> Any:
    """A change with something in every field."""
    values = {}
    for name, hint in get_type_hints(kind).items():
        if name == "settings":
            values[name] = {"a": 1, "b": 1.0, "c": None, "d": True, "e": "x"}
        elif name == "overlay":
            values[name] = overrides_of({"reason": "because", "at": datetime(2026, 1, 1, tzinfo=UTC), "raw": b"\xff"})
        elif name == "data":
            values[name] = MESSAGE
        else:
            values[name] = VALUES[hint]
    return kind(**(values | {"at_ns": AT_NS}))


def back(change: Change, *, seq: int = 5, group: int = 0, synced: int = 0) -> Change:
    line = line_of(seq, change, "orders", group, synced)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert is_whole(line[:-1])
    read = read_line(line[:-1], "log", 1)
    assert (read.seq, read.group, read.synced) == (seq, group or seq, synced)
    return read.change


@pytest.mark.parametrize("kind", CHANGES)
def test_every_kind_of_change_comes_back(kind: Any) -> None:
    change = sample(kind)
    assert back(change) == change
    assert type(back(change, group=9, synced=100)) is kind


@pytest.mark.parametrize("kind", CHANGES)
def test_a_line_is_for_people(kind: Any) -> None:
    line = json.loads(line_of(5, sample(kind), "orders", 0, 0))
    assert line["op"] == op_of(kind)
    assert line["ts"] == "2025-10-09T08:53:20.123456789Z"
    assert (line["seq"], line["channel"], len(line["crc"])) == (5, "orders", 8)


def test_the_names_of_operations_do_not_change() -> None:
    """They are on disks. A new one may come at the end."""
    assert " ".join(op_of(kind) for kind in CHANGES).startswith(
        "sent passed copied delivered renewed returned deferred activated completed cancelled expired dead_lettered"
        " routed duplicated session_taken session_left session_stated processed declared dropped purged moved advanced"
        " pruned forgotten applied"
    )


def sent(data: bytes) -> Sent:
    return Sent(AT_NS, 1, 1, MessageRef("m", len(data)), 50, 0, 0, None, data)


bodies = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=20) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30, deadline=None)
@given(
    bodies, st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5) | st.binary(max_size=5), max_size=2)
)
def test_messages_come_back_byte_for_byte(body: object, headers: dict[str, object]) -> None:
    data = encode(Message.new("orders", body).with_fields({"headers": headers}))
    change = back(sent(data))
    assert isinstance(change, Sent)
    assert change.data == data


@given(st.binary(max_size=200))
def test_so_does_what_is_no_message(data: bytes) -> None:
    change = back(sent(data))
    assert isinstance(change, Sent)
    assert change.data == data


def test_a_body_can_be_read_in_the_line() -> None:
    line = json.loads(line_of(1, sent(MESSAGE), "orders", 0, 0))
    assert line["message"]["body"] == {"n": 1, "text": "zwölf"}
    assert "data" not in line
    line = json.loads(line_of(1, sent(b"\xff\xfe"), "orders", 0, 0))
    assert line["data"] == "//4="
    assert "message" not in line


def test_bytes_that_only_mean_the_same_are_kept_as_they_are() -> None:
    """A message may encode that it has no headers; its JSON omits them."""
    data = encode(Message.new("orders", "b").with_fields({}))
    assert data != encode(decode(data.replace(b"\x98", b"\x97", 1)[:-1]))
    line = json.loads(line_of(1, sent(data), "orders", 0, 0))
    assert (line["message"]["body"], bool(line["data"])) == ("b", True), "one for people, one that counts"
    change = back(sent(data))
    assert isinstance(change, Sent)
    assert change.data == data


@pytest.mark.parametrize(
    "value", ["text", b"\xff", 2**63 - 1, -1, 1.5, float("inf"), True, UUID(int=7), Decimal("1.10"), datetime.now(UTC)]
)
def test_headers_of_a_settlement_keep_their_type(value: Any) -> None:
    change = sample(Copied)
    change.overlay = overrides_of({"h": value})
    assert back(change) == change


def test_headers_that_json_cannot_hold_are_kept_too() -> None:
    change = sample(Copied)
    change.overlay = {"h": float("nan"), "t": {"$unknown": 1}}
    read = back(change)
    assert isinstance(read, Copied)
    assert msgspec.msgpack.encode(read.overlay) == msgspec.msgpack.encode(change.overlay)


def test_a_message_that_was_passed_on_without_data_has_none() -> None:
    change = Passed(AT_NS, 1, 1, MessageRef("m", 0), 50, None, 2, b"")
    assert back(change) == change


def test_every_bit_of_a_line_counts() -> None:
    line = line_of(5, sample(Sent), "orders", 6, 100)[:-1]
    for number in range(len(line)):
        for bit in range(8):
            altered = bytearray(line)
            altered[number] ^= 1 << bit
            assert not is_whole(bytes(altered)), (number, bit)
    for length in range(len(line)):
        assert not is_whole(line[:length])


def test_lines_of_a_newer_version_are_told_from_damaged_ones() -> None:
    line = sealed(b'{"op":"teleported","seq":5,"ts":"2026-01-01T00:00:00.000000000Z"}')[:-1]
    assert is_whole(line)
    with pytest.raises(StoreVersion, match="log, line 3"):
        read_line(line, "log", 3)


@given(st.integers(-(2**60), 2**62))
def test_instants_come_back(instant_ns: int) -> None:
    assert instant_of(instant_text(instant_ns)) == instant_ns


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-01T00:00:00Z", "2026-13-01T00:00:00.000000000Z"])
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        instant_of(text)


def test_garbage_is_never_a_line() -> None:
    chance = random.Random(3)
    assert not any(is_whole(chance.randbytes(chance.randrange(60))) for _ in range(1_000))
