"""Live answers: server-sent events.

    id: 42
    event: changes
    data: {"rows": []}
                                    an empty line ends an event; data is JSON on one line

A live answer is endless. The runner ends it when the client disconnects, when the client loses its right, and when the
server stops; the client then connects again with `Last-Event-ID`. While there are no events a comment is sent every
KEEP_ALIVE_S seconds, so that proxies keep the connection and a disconnect is noticed. Backpressure: the next piece is
produced only when the client has read most of the former ones, so a slow client takes no memory.
"""

from collections.abc import AsyncGenerator
from typing import Final

from unibus.endpoints.http.request import EVENT_STREAM, Response

KEEP_ALIVE_S: Final = 15.0
KEEP_ALIVE: Final = b": \n\n"
RETRY: Final = b"retry: 1000\n\n"
"""The first bytes of every live answer: a browser reconnects after so many milliseconds."""


def event(data: bytes, name: str = "", at: int | None = None) -> bytes:
    """One event. `data` is JSON on one line; `at` is the position to resume from."""
    head = f"id: {at}\n" if at is not None else ""
    head += f"event: {name}\n" if name else ""
    return b"%sdata: %s\n\n" % (head.encode(), data)


def live_response(pieces: AsyncGenerator[bytes, None]) -> Response:
    """`pieces` yields events, whole or in parts, and KEEP_ALIVE after KEEP_ALIVE_S without any."""
    headers = [("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")]
    return Response(200, b"", EVENT_STREAM, headers, pieces)
