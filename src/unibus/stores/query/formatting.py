# mypyc: compiled
"""The SQL form of values: times as text that SQLite's date functions read, bodies as JSON.

time      2026-01-31 23:59:59.000001    UTC. The order of texts is that of times, also beside datetime('now')
body      always valid JSON, so that json_extract never fails. Bytes with a JSON object or array are shown as
          such; other bytes as "base64:…", serialized data as "msgpack:base64:…"
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, final

import msgspec
from mypy_extensions import i64

from unibus.core.codec.wire import base64_text, tagged
from unibus.core.envelope.payload import SerializationFormat, Serialized

_EPOCH: Final = datetime(1970, 1, 1)
_MILLION: Final = 1_000_000
BASE64: Final = "base64:"

_to_json: Final[Callable[[object], bytes]] = msgspec.json.Encoder().encode
_from_json: Final = msgspec.json.Decoder().decode


@final
class TimeFormatter:
    """Times as text. Keeps the text of the last second: most messages of a page are from the same one."""

    def __init__(self) -> None:
        self._second: i64 = -1
        self._text = ""

    def text(self, instant_us: i64) -> str:
        second = instant_us // _MILLION
        # datetime is the slow part, and has to be called only once per second of messages.
        if second != self._second:
            self._text = (_EPOCH + timedelta(seconds=int(second))).isoformat(" ") + "."
            self._second = second
        return self._text + str(_MILLION + instant_us - second * _MILLION)[1:]

    def text_ns(self, instant_ns: i64) -> str | None:
        """None for 0, which means never."""
        return None if instant_ns == 0 else self.text(instant_ns // 1_000)


def instant_text(value: datetime) -> str:
    """A datetime in the form of the tables; one without a zone is UTC."""
    there = value if value.tzinfo is None else value.astimezone(UTC)
    return there.replace(tzinfo=None).isoformat(" ", "microseconds")


def body_text(body: object) -> str:
    if isinstance(body, (bytes, bytearray, memoryview)):
        return _bytes_text(bytes(body), "")
    if isinstance(body, Serialized):
        prefix = "" if body.format is SerializationFormat.JSON else f"{body.format.value}:"
        return _bytes_text(body.data, prefix)
    try:
        return _to_json(body).decode("utf-8")
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _to_json(tagged(body, False)).decode("utf-8")


def _bytes_text(data: bytes, prefix: str) -> str:
    if not prefix and data[:1] in (b"{", b"["):
        try:
            _from_json(data)
            return data.decode("utf-8")
        except (msgspec.DecodeError, ValueError, RecursionError):
            pass
    return _to_json(prefix + BASE64 + base64_text(data)).decode("utf-8")
