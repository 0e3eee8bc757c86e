"""Server-sent events: how live answers are written, and how what they wait for wakes them.

    id: 42
    event: changes
    data: {"rows": []}
                                    an empty line ends an event; data is JSON, so it never has a line of its own

A live answer has no end of its own. It ends when its client leaves, when its right is gone, and when the server stops
(`runner`); then the client connects again with `Last-Event-ID`. While nothing happens a comment goes out every
KEEP_ALIVE_S seconds, so that proxies keep the connection and a client that is gone is noticed. A client that does not
read is not waited for in memory: the next piece is made when it has taken those before.
"""

from collections.abc import AsyncGenerator
from typing import Final

from unibus.endpoints.http.request import EVENT_STREAM, Response

KEEP_ALIVE_S: Final = 15.0
KEEP_ALIVE: Final = b": \n\n"
RETRY: Final = b"retry: 1000\n\n"
"""The first thing in every live answer: a browser connects again after so many milliseconds."""


def event(data: bytes, name: str = "", at: int | None = None) -> bytes:
    """One event. `data` is JSON on one line; `at` is the place to go on from."""
    head = f"id: {at}\n" if at is not None else ""
    head += f"event: {name}\n" if name else ""
    return b"%sdata: %s\n\n" % (head.encode(), data)


def live_response(pieces: AsyncGenerator[bytes, None]) -> Response:
    """`pieces` yields whole events or parts of them, and KEEP_ALIVE where it has waited that long in vain."""
    headers = [("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")]
    return Response(200, b"", EVENT_STREAM, headers, pieces)
