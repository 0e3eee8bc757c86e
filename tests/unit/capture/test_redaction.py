"""Rules of redaction: what they take away never reaches the disk; and how bodies look at all."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from tests.unit.capture.captures import bodies, capture_all
from tests.unit.capture.histories import working
from unibus.capture.bodies import BYTES, ENVELOPE, JSON, Body, body_of
from unibus.capture.manifest import Manifest
from unibus.capture.redaction import Redaction, RedactionRule, rule_of
from unibus.capture.settings import Policy
from unibus.core.codec.codec import encode
from unibus.core.envelope.message import Message
from unibus.core.envelope.payload import SerializationFormat, Serialized
from unibus.errors import ConfigInvalid


def redacted(rule: str, body: object, channel: str = "orders/eu", headers: dict[str, str] | None = None) -> Body:
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    found = Body(JSON, headers, content)
    Redaction([rule_of(rule)])(channel, found)
    return found


def test_rules_are_read_and_written_the_same() -> None:
    for text in ("orders/*=drop", "o=hash", "a=b=fields:card.number,email", "*=headers", "*=headers:authorization"):
        assert rule_of(text).text == text
    assert rule_of("a=b=fields: x , y") == RedactionRule("a=b", "fields", ("x", "y"))


@pytest.mark.parametrize("text", ["", "orders", "=drop", "orders=", "orders=burn", "o=fields", "o=fields:", "o=drop:x"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="not a redaction rule"):
        rule_of(text)


def test_a_body_is_dropped_or_hashed() -> None:
    assert (redacted("orders/*=drop", {"a": 1}).body, redacted("orders/*=drop", {"a": 1}).redacted) == (None, True)
    one, two = redacted("*=hash", {"a": 1}), redacted("*=hash", {"a": 2})
    assert one.body is not None
    assert len(one.body) == 64
    assert one.body == redacted("*=hash", {"a": 1}).body != two.body


def test_other_channels_are_left_alone() -> None:
    for channel in ("orders", "my/orders/eu"):
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


@pytest.mark.parametrize(
    ("rule", "channel"), [("Orders/*", "orders/EU"), ("orders/eu", "ORDERS/eu"), ("STRASSE", "straße")]
)
def test_capitals_make_no_difference_as_they_make_none_to_the_bus(rule: str, channel: str) -> None:
    assert redacted(f"{rule}=drop", {"a": 1}, channel).body is None


@pytest.mark.parametrize(
    "body", [b"\xff card=4111", "card=4111", '{"card":', b'\xef\xbb\xbf{"card":"4111"}', '"card=4111"']
)
def test_a_body_that_a_rule_cannot_read_is_dropped(body: object) -> None:
    found = redacted("*=fields:card", body)
    assert (found.body, found.redacted) == (None, True)


SECRET = "4111"


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"card": {"number": SECRET}}),
        json.dumps(json.dumps({"card": {"number": SECRET}})),
        {"card": json.dumps({"number": SECRET})},
        {"card": {"number": SECRET, 1: "x"}},
        {1: "x", "card": {"number": SECRET}},
        ({"card": {"number": SECRET}},),
        {"card": ({"number": SECRET}, [{"number": SECRET}])},
        {"card": {("number", SECRET)}},
        {"card": SECRET},
        {"card": json.dumps({"number": SECRET}).encode()},
        {"card": {"number": SECRET, "$tuple": 1}, "$set": 2},
    ],
    ids=str,
)
def test_a_field_is_found_in_whatever_python_value_it_is(body: object) -> None:
    found = body_of(message(body))
    assert found.body is not None
    Redaction([rule_of("*=fields:card.number")])("orders", found)
    assert found.body is not None
    assert SECRET.encode() not in found.body
    assert found.redacted


@pytest.mark.parametrize("body", [7, None, 2.5, [1, {"a": 2}], {"card": 7}, {"card": Decimal(1)}, (1, 2)], ids=str)
def test_what_has_no_such_field_is_kept(body: object) -> None:
    before, found = body_of(message(body)), body_of(message(body))
    Redaction([rule_of("*=fields:card.number")])("orders", found)
    assert found == before


def test_a_name_that_is_there_twice_hides_nothing() -> None:
    assert redacted("*=fields:card.number", b'{"card":{"number":"4111"},"card":{}}').body == b'{"card":{}}'


def test_names_that_are_no_text_can_be_named() -> None:
    found = body_of(message({1: {"a": "x"}, 2: "y"}))
    Redaction([rule_of("*=fields:1.a,2")])("orders", found)
    assert found.body == b'{"$map":[[1,{"a":"***"}],[2,"***"]]}'


def test_headers_of_what_cannot_be_read_go_with_it() -> None:
    found = body_of(b"\x97\x11 authorization: secret")
    Redaction([rule_of("*=headers:authorization")])("orders", found)
    assert (found.content_type, found.body, found.redacted) == (ENVELOPE, None, True)


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
        (float("nan"), JSON, b'{"$float":"nan"}'),
        ({"x": [float("-inf"), None]}, JSON, b'{"x":[{"$float":"-inf"},null]}'),
        ({"$x": None}, JSON, b'{"$x":null}'),
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
    assert body_of(message(float("inf"), headers={"n": 1})).body == b'{"$float":"inf"}'
    found = body_of(message("x", headers={"at": at}, content_type="text/plain"))
    assert (found.content_type, found.headers, found.body) == ("text/plain", {"at": str(at)}, b'"x"')


def test_what_cannot_be_read_is_kept_as_it_is() -> None:
    found = body_of(b"\x97\x11 nothing that is a message")
    assert (found.content_type, found.body) == (ENVELOPE, b"\x97\x11 nothing that is a message")
    assert found.headers is not None
