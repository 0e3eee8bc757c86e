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

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Final

from unibus.endpoints.http.request import EVENT_STREAM, Response

KEEP_ALIVE_S: Final = 15.0
KEEP_ALIVE: Final = b": \n\n"
PIECE_BYTES_MAX: Final = 64 * 1024
"""What is written at once: more would stop the loop for longer than other requests should wait."""

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


def joined(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of about PIECE_BYTES_MAX."""
    held: list[bytes] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= PIECE_BYTES_MAX:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


class Wake:
    """Wakes all who wait at this moment, from any thread. For one event loop.

    A waiter looks first whether there is something new and waits after that, without an await in between.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
        """On the loop."""
        if not self._next.done():
            self._next.set_result(None)
        self._next = self._loop.create_future()

    def wake_soon(self) -> None:
        """From any thread. Nothing happens once the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self.wake)
        except RuntimeError:
            return

    async def wait(self, timeout_s: float = KEEP_ALIVE_S) -> bool:
        """False if nothing came in that time."""
        done, _ = await asyncio.wait([self._next], timeout=timeout_s)
        return bool(done)
