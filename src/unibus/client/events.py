"""Server-sent events: parsed, and resumed after a disconnect.

    id: 4711              the position to resume from
    event: page           the kind of the event
    data: {…}             a record; several lines are one text
    (an empty line)       the end of the event
    : …                   a comment, which serves as a keep-alive

A stream that ends is requested again from the last `id` that was read. So a restart of the server, or a lost
connection, is a pause and not a gap.
"""

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from unibus.client.client import Client, Query
from unibus.errors import AnswerInvalid, ServerUnavailable, StoreUnavailable

RETRY_S: Final = 0.5
RETRIES_S: Final = 30.0
"""How long a server may be unreachable: a restart, and the recovery of a large store."""

EVENT_BYTES_MAX: Final = 64 * 1024 * 1024


class ServerEvent(NamedTuple):
    id: str
    kind: str
    data: bytes


class EventStream:
    """The endless events of one path. `last_id` is the position to resume from."""

    def __init__(self, client: Client, path: str, query: Query | None = None, last_id: str = "") -> None:
        self.last_id = last_id
        self._client = client
        self._path = path
        self._query = query

    def __iter__(self) -> Iterator[ServerEvent]:
        ends_s = 0.0
        while True:
            try:
                for event in parsed(self._client.pieces(self._path, self._query, self.last_id)):
                    ends_s = 0.0
                    self.last_id = event.id or self.last_id
                    if event.data:
                        yield event
            except (ServerUnavailable, StoreUnavailable, _Cut) as error:
                ends_s = ends_s or time.monotonic() + RETRIES_S
                if time.monotonic() > ends_s:
                    raise error if not isinstance(error, _Cut) else error.cause from None
            time.sleep(RETRY_S)


class _Cut(Exception):
    """The stream ended early: it is resumed from the last id."""

    def __init__(self, cause: AnswerInvalid) -> None:
        super().__init__()
        self.cause = cause


def parsed(pieces: Iterator[bytes]) -> Iterator[ServerEvent]:
    """Parse events from the pieces of a stream, wherever it is cut. An incomplete last event is discarded."""
    name, kind, size = "", "", 0
    data: list[bytes] = []
    for line in _lines(pieces):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data or name:  # An id alone is a keep-alive that advances the position.
                yield ServerEvent(name, kind, b"\n".join(data))
            name, kind, data, size = "", "", [], 0
        elif field == b"data":
            data.append(value)
            size += len(value)
            _check(size)
        elif field == b"id":
            name = value.decode("utf-8", "replace")
        elif field == b"event":
            kind = value.decode("utf-8", "replace")


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    while (piece := _next(pieces)) is not None:
        *whole, rest = (rest + piece).split(b"\n")
        _check(len(rest))
        yield from [line.removesuffix(b"\r") for line in whole]


def _next(pieces: Iterator[bytes]) -> bytes | None:
    try:
        return next(pieces, None)
    except AnswerInvalid as error:
        raise _Cut(error) from error


def _check(size: int) -> None:
    if size > EVENT_BYTES_MAX:
        raise StreamTooLarge(f"an event of the server has more than {EVENT_BYTES_MAX:,} bytes", "ask for less at once")


class StreamTooLarge(AnswerInvalid):
    """Not retried: the same event would be as large again."""
