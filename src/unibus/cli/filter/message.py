"""The message that a filter is tested with, built from options and a file.

It is built as the JSON form of a message and then decoded like any other, so the same checks apply. Filters do not read
the body, so it has none.
"""

import difflib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from unibus.cli.terminal.durations import seconds_of
from unibus.errors import UsageError

if TYPE_CHECKING:
    from unibus.core.envelope.message import Message
    from unibus.core.envelope.message_properties import HeaderValue

Document = dict[str, object]

STDIN: Final = "-"
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INSTANT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:.+")
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_DIGITS_MAX: Final = 30
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_TEXT: Final = "text"
_COUNT: Final = "count"
_SPAN: Final = "span"
_MOMENT: Final = "moment"
_SYSTEM: Final[dict[str, tuple[str, str]]] = {
    "messageid": ("id", _TEXT),
    "id": ("id", _TEXT),
    "label": ("subject", _TEXT),
    "subject": ("subject", _TEXT),
    "correlationid": ("correlation_id", _TEXT),
    "contenttype": ("content_type", _TEXT),
    "to": ("to", _TEXT),
    "replyto": ("reply_to", _TEXT),
    "replytosessionid": ("reply_to_session_id", _TEXT),
    "sessionid": ("session_id", _TEXT),
    "partitionkey": ("partition_key", _TEXT),
    "deliverycount": ("delivery_count", _COUNT),
    "sequencenumber": ("sequence", _COUNT),
    "timetolive": ("ttl_ns", _SPAN),
    "scheduledenqueuetimeutc": ("scheduled_at_ns", _MOMENT),
    "enqueuedtimeutc": ("timestamp_ns", _MOMENT),
    "expiresatutc": ("expires_ns", _MOMENT),
}
"""System properties without case and underscores: `Label`, `correlation_id` and `CorrelationId` are all known."""

_TIMES: Final = {"sent_at": "timestamp_ns", "scheduled_at": "scheduled_at_ns", "expires_at": "expires_ns"}
_LEFT_OUT: Final = frozenset({"entity", "enqueued_at", "locked_until", "kind", "body"})


def message_of(file: str | None, properties: Sequence[str], system: Iterable[str]) -> "Message":
    """Options override the fields of the file."""
    from unibus.core.codec.codec import decode_json, encode_json
    from unibus.core.codec.wire import tagged
    from unibus.core.envelope.message import Message

    document: Document = msgspec.json.decode(encode_json(Message.new("filter-test")))
    if file is not None:
        document.update(_document(file))
    found = document.get("headers")
    headers: Document = dict(found) if isinstance(found, dict) else {}
    typed = values_of("--property", properties)
    for name in [_split("--property", text)[0] for text in properties]:
        headers.pop(name, None)  # A property that is null now removes the one of the file.
    document["headers"] = {**headers, **{name: tagged(value, False) for name, value in typed.items()}}
    for text in system:
        field, content = _system(*_split("--sys", text))
        document[field] = content
    return decode_json(msgspec.json.encode({name: value for name, value in document.items() if value is not None}))


# From options


def values_of(option: str, given: Iterable[str]) -> "dict[str, HeaderValue]":
    """The NAME=VALUE pairs of that option, with types inferred from the values; without those that are null."""
    from unibus.core.envelope.fields import checked_headers

    pairs = [_split(option, text) for text in given]
    values = {name: value_of(text) for name, text in pairs}
    return checked_headers({name: value for name, value in values.items() if value is not None})


def _split(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{option} {text!r} is not NAME=VALUE", f"for example {option} color=red")
    return name, value


def value_of(text: str) -> str | bool | int | float | datetime | None:
    """1 is a whole number, 1.5 a double, true a boolean, 2026-01-31T12:00 an instant; all else, or quoted, is text."""
    if (plain := _unquoted(text)) is not None:
        return plain
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _WHOLE.fullmatch(text):
        return _whole(text)
    if _DOUBLE.fullmatch(text):
        return float(text)
    return _instant(text) or text


def _whole(text: str) -> int:
    if len(text) > _DIGITS_MAX:  # Python's own limit has a message for programmers.
        raise UsageError(f"{text[:_DIGITS_MAX]}… does not fit into 64 bits", "quote it if it is text")
    return int(text)


def _unquoted(text: str) -> str | None:
    """The text between single quotes, with the escapes of filters; None if it is not quoted."""
    if len(text) < 2 or text[0] != "'" or text[-1] != "'" or "'" in text[1:-1].replace("''", ""):
        return None
    return text[1:-1].replace("''", "'")


def _instant(text: str) -> datetime | None:
    """As for headers, a time without a zone is UTC."""
    if not _INSTANT.fullmatch(text):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _system(given: str, text: str) -> tuple[str, object]:
    known = given.removeprefix("sys.").replace("_", "").lower()
    if known not in _SYSTEM:
        close = difflib.get_close_matches(known, _SYSTEM, 1)
        names = ", ".join(sorted({name for name, _ in _SYSTEM.values()}))
        hint = f"did you mean {_SYSTEM[close[0]][0]}?" if close else f"use one of {names}"
        raise UsageError(f"--sys: there is no system property {given!r}", hint)
    name, kind = _SYSTEM[known]
    if text.lower() == "null":
        return name, None
    return name, _system_value(given, kind, text)


def _system_value(given: str, kind: str, text: str) -> object:
    if kind == _TEXT:
        plain = _unquoted(text)
        return text if plain is None else plain
    if kind == _SPAN:
        return round(seconds_of(f"--sys {given}", text) * 1e9)
    if kind == _COUNT and text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    moment = _instant(text) if kind == _MOMENT else None
    if moment is None:
        hint = "use a whole number" if kind == _COUNT else "for example 2026-01-31T12:00:00Z"
        raise UsageError(f"--sys {given}: {text!r} is not a valid value", hint)
    return _since_epoch_ns(moment)


def _since_epoch_ns(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


# From a file


def _document(file: str) -> Document:
    """A message as `unibus peek` or `unibus export` writes it, or some of its fields."""
    data = sys.stdin.buffer.read() if file == STDIN else Path(os.fspath(file)).read_bytes()
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        where = "standard input" if file == STDIN else file
        raise UsageError(
            f"{where} is not one message in JSON: {error}", "`unibus peek QUEUE -n 1` writes one"
        ) from None
    envelope = found.get("envelope", found) if isinstance(found, dict) else None
    if not isinstance(envelope, dict):
        hint = 'for example {"headers": {"color": "red"}, "subject": "order"}'
        raise UsageError("a message must be a JSON object", hint)
    document = {name: value for name, value in envelope.items() if name not in _LEFT_OUT}
    for name, kept in _TIMES.items():
        if name in document:
            document[kept] = _written_ns(name, document.pop(name))
    return document


def _written_ns(name: str, value: object) -> int:
    moment = _instant(value) if isinstance(value, str) else None
    if moment is None:
        raise UsageError(f"{name} {value!r:.60} is not an instant", "for example 2026-01-31T12:00:00Z")
    return _since_epoch_ns(moment)
