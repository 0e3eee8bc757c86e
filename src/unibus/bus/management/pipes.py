"""Bytes from a thread that produces them to a loop that sends them, with few of them in between.

    thread: produce(put) ── put waits for room ──▶ pieces ──▶ loop: async for piece in pipe

A consumer that leaves (`close`) ends the producer at its next piece: `put` raises. So does one that takes nothing for
STALL_S: what the producer reads must not be held open for a client that does not read.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Final, TypeAlias

from unibus.bus.loop_call import notify_loop
from unibus.bus.management.aside import begin_in_thread

log = logging.getLogger("unibus")

PIECE_BYTES: Final = 64 * 1024
PIECES_MAX: Final = 16
"""A megabyte on its way, and one piece more, of whatever size, with the consumer."""

STALL_S: Final = 60.0

Put: TypeAlias = Callable[[bytes], None]


class ConsumerLeft(Exception):
    """Nobody takes the pieces any more."""


class Pipe:
    """Made on the loop; `begin` starts the thread."""

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._room: Final = threading.Semaphore(PIECES_MAX)
        self._pieces: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()
        self._is_closed = False
        self._open: list[bytes] = []
        self._size = 0

    def begin(self, name: str, produce: Callable[[Put], None]) -> "asyncio.Future[None]":
        """The future is done when the thread is: whatever the producer had open is closed then."""
        return begin_in_thread(name, partial(self._run, produce))

    # In the thread

    def _run(self, produce: Callable[[Put], None]) -> None:
        try:
            produce(self._put)
            if self._open:
                self._flush()
        except ConsumerLeft:
            return
        except BaseException as error:
            notify_loop(self._loop, partial(self._pieces.put_nowait, error))
        else:
            notify_loop(self._loop, partial(self._pieces.put_nowait, None))

    def _put(self, data: bytes) -> None:
        self._open.append(data)
        self._size += len(data)
        if self._size >= PIECE_BYTES:
            self._flush()

    def _flush(self) -> None:
        piece = b"".join(self._open)
        self._open, self._size = [], 0
        if not self._room.acquire(timeout=STALL_S):
            log.warning("a stream was ended: its client took nothing for %d s", STALL_S)
            notify_loop(self._loop, partial(self._pieces.put_nowait, ConsumerLeft()))
            raise ConsumerLeft
        if self._is_closed:
            raise ConsumerLeft
        notify_loop(self._loop, partial(self._pieces.put_nowait, piece))

    # On the loop

    async def take(self) -> bytes | None:
        """The next piece, None at the end; what the producer has raised."""
        piece = await self._pieces.get()
        if isinstance(piece, BaseException):
            raise piece
        self._room.release()
        return piece

    async def pieces(self, first: bytes | None) -> AsyncGenerator[bytes, None]:
        """The rest behind a piece that was taken, as a stream. It is cut where the producer fails, and that is logged:
        an answer that has begun cannot become an error."""
        try:
            piece = first
            while piece is not None:
                yield piece
                piece = await self.take()
        except ConsumerLeft:
            return
        except Exception:
            log.exception("a stream was cut: it could not be produced to its end")
        finally:
            self.close()

    def close(self) -> None:
        self._is_closed = True
        self._room.release()  # A producer that waits for room looks again.
