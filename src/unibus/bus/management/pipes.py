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

from unibus.bus.management.aside import begin_in_thread
from unibus.bus.pubsub.loop_call import notify_loop
from unibus.errors import RequestTimeout

log = logging.getLogger("unibus")

PIECE_BYTES: Final = 64 * 1024
PIECES_MAX: Final = 16
"""A megabyte on its way, and what the producer puts at once."""

STALL_S: Final = 60.0

Put: TypeAlias = Callable[[bytes], None]


class ConsumerLeft(Exception):
    """The consumer takes no more pieces."""


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
        """In slices: a message of 100 MB must not be on its way as often as there is a place for a piece."""
        piece = memoryview(b"".join(self._open))
        self._open, self._size = [], 0
        for start in range(0, len(piece), PIECE_BYTES):
            self._pass_on(bytes(piece[start : start + PIECE_BYTES]))

    def _pass_on(self, piece: bytes) -> None:
        if not self._room.acquire(timeout=STALL_S):
            log.warning("a stream was ended: its client took nothing for %d s", STALL_S)
            stalled = RequestTimeout(f"the client took nothing for {STALL_S:g} s", "read it without a pause")
            notify_loop(self._loop, partial(self._pieces.put_nowait, stalled))
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

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """All pieces, when the first one is there: what the producer raises before it is raised here."""
        pieces = self._pieces_from(await self.take())
        await anext(pieces)  # A generator that was never entered has no `finally`: nothing would end the producer.
        return pieces

    async def _pieces_from(self, first: bytes | None) -> AsyncGenerator[bytes, None]:
        """It raises where the producer fails: who sends the pieces has to cut its answer, whose end would say that it
        is whole."""
        try:
            yield b""
            piece = first
            while piece is not None:
                yield piece
                piece = await self.take()
        finally:
            self.close()

    def close(self) -> None:
        self._is_closed = True
        self._room.release()  # A producer that waits for room looks again.
