"""Rules of redaction: what they take away never reaches the disk; and how bodies look at all."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from tests.unit.capture.captures import bodies, capture_all
from tests.unit.capture.histories import working
from unibus.capture.bodies import BYTES, ENVELOPE, JSON, Body, body_of
from unibus.capture.manifest import Manifest
from unibus.capture.redaction import Redaction, Rule, rule_of
from unibus.capture.settings import Policy
from unibus.core.codec import encode
from unibus.core.message import Message
from unibus.core.payload import SerializationFormat, Serialized
from unibus.errors import ConfigInvalid


def redacted(rule: str, body: object, channel: str = "orders/eu", headers: dict[str, str] | None = None) -> Body:
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    found = Body(JSON, headers, content)
    Redaction([rule_of(rule)])(channel, found)
    return found


def test_rules_are_read_and_written_the_same() -> None:
    for text in ("orders/*=drop", "o=hash", "a=b=fields:card.number,email", "*=headers", "*=headers:authorization"):
        assert rule_of(text).text == text
    assert rule_of("a=b=fields: x , y") == Rule("a=b", "fields", ("x", "y"))


@pytest.mark.parametrize("text", ["", "orders", "=drop", "orders=", "orders=burn", "o=fields", "o=fields:", "o=drop:x"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="no rule of redaction"):
        rule_of(text)


def test_a_body_is_dropped_or_hashed() -> None:
    assert (redacted("orders/*=drop", {"a": 1}).body, redacted("orders/*=drop", {"a": 1}).redacted) == (None, True)
    one, two = redacted("*=hash", {"a": 1}), redacted("*=hash", {"a": 2})
    assert one.body is not None
    assert len(one.body) == 64
    assert one.body == redacted("*=hash", {"a": 1}).body != two.body


def test_other_channels_are_left_alone() -> None:
    for channel in ("orders", "Orders/eu", "my/orders/eu"):
        found = redacted("orders/*=drop", {"a": 1}, channel)
        assert (found.body, found.redacted) == (b'{"a":1}', False)


def test_fields_are_blotted_wherever_they_are() -> None:
    body = {"card": {"number": "4111", "name": "x"}, "email": None, "items": [{"card": {"number": 1}}, 7]}
    found = redacted("*=fields:card.number,email,items.card,nothing.here", body)
    assert found.body is not None
    assert msgspec.json.decode(found.body) == {
        "card": {"number": "***", "name": "x"},
        "email": "***",
        "items": [{"card": "***"}, 7],
    }
    assert found.redacted
    same = redacted("*=fields:other", {"card": 1})
    assert (same.body, same.redacted) == (b'{"card":1}', False)


def test_a_body_that_a_rule_cannot_read_is_dropped() -> None:
    found = redacted("*=fields:card", b"\xff card=4111")
    assert (found.body, found.redacted) == (None, True)


def test_headers_go_only_where_a_rule_says_so() -> None:
    headers = {"Authorization": "secret", "other": "x"}
    assert redacted("*=drop", 1, headers=dict(headers)).headers == headers
    one = redacted("*=headers:authorization", 1, headers=dict(headers))
    assert (one.headers, one.body, one.redacted) == ({"Authorization": "***", "other": "x"}, b"1", True)
    assert redacted("*=headers", 1, headers=dict(headers)).headers is None
    assert not redacted("*=headers:none", 1, headers=dict(headers)).redacted


def test_all_rules_that_fit_are_applied() -> None:
    found = Body(JSON, {"h": "1"}, b'{"a":1,"b":2}')
    Redaction([rule_of("*=fields:a"), rule_of("x*=fields:b"), rule_of("*=headers")])("x1", found)
    assert (found.body, found.headers) == (b'{"a":"***","b":"***"}', None)


def test_a_rule_that_finds_nothing_does_not_hide_what_another_did() -> None:
    found = Body(JSON, None, b'{"card":1}')
    Redaction([rule_of("*=fields:card"), rule_of("*=fields:other")])("orders", found)
    assert (found.body, found.redacted) == (b'{"card":"***"}', True)


def test_the_secret_is_in_no_file(tmp_path: Path) -> None:
    """Nor are the rules forgotten by the next start; a change of them is written down."""
    secret = "4111-1111-1111-1111"
    folder = tmp_path / "capture"
    with working(tmp_path / "bus.db") as work:
        work.rig.send("a", {"card": secret}, token="x")
        work.rig.send("b", {"card": secret})
        policy = Policy(redact=(rule_of("a=fields:card"), rule_of("b=drop")))
        capture_all(work.url, folder, policy=policy)
        work.rig.send("a", {"card": secret})
        capture_all(work.url, folder)
        assert [row["body"] for row in bodies(folder)] == [b'{"card":"***"}', None, b'{"card":"***"}']
        assert [row["redacted"] for row in bodies(folder)] == [True] * 3
        for path in folder.rglob("*"):
            assert path.is_dir() or secret.encode() not in path.read_bytes()
        before = Manifest.load(str(folder)).about
        assert before.changed == []
        capture_all(work.url, folder, policy=Policy(keep_s=60.0))
        about = Manifest.load(str(folder)).about
        assert about.settings == {"keep_s": 60.0}
        assert [each["before"] for each in about.changed] == [before.settings]


# How bodies look


def message(body: object, **fields: object) -> bytes:
    return encode(Message.new("orders", body).with_fields(fields) if fields else Message.new("orders", body))


@pytest.mark.parametrize(
    ("body", "kind", "content"),
    [
        ({"a": [1, "x", None, 2.5]}, JSON, b'{"a":[1,"x",null,2.5]}'),
        (None, JSON, b"null"),
        (b"\x00\xff", BYTES, b"\x00\xff"),
        (Decimal("1.50"), JSON, b'{"$decimal":"1.50"}'),
        ({"raw": b"\x01"}, JSON, b'{"raw":{"$bytes":"AQ=="}}'),
        ([[[[[[[[1]]]]]]]], JSON, b"[[[[[[[[1]]]]]]]]"),
        (Serialized(SerializationFormat.JSON, b"{}"), "application/x-json", b"{}"),
        ({1: "key"}, JSON, b'{"$map":[[1,"key"]]}'),
    ],
    ids=str,
)
def test_a_body_is_kept_so_that_anybody_can_read_it(body: object, kind: str, content: bytes) -> None:
    found = body_of(message(body))
    assert (found.content_type, found.body, found.headers) == (kind, content, None)


def test_headers_are_text_and_a_type_of_its_own_is_kept() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    found = body_of(message({"a": 1}, headers={"n": 1, "s": "x", "t": True}))
    assert found.headers == {"n": "1", "s": "x", "t": "True"}
    found = body_of(message("x", headers={"at": at}, content_type="text/plain"))
    assert (found.content_type, found.headers, found.body) == ("text/plain", {"at": str(at)}, b'"x"')


def test_what_cannot_be_read_is_kept_as_it_is() -> None:
    found = body_of(b"\x97\x11 nothing that is a message")
    assert (found.content_type, found.body) == (ENVELOPE, b"\x97\x11 nothing that is a message")
    assert found.headers is not None
