"""A bounded pipe of bytes from a producer thread to the event loop.

    thread: produce(put) ── put blocks while the pipe is full ──▶ pieces ──▶ loop: async for piece in pipe

A consumer that closes the pipe ends the producer at its next piece: `put` raises. So does a consumer that takes nothing
for STALL_S seconds: the producer holds a read transaction, which must not stay open for a client that does not read.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Final, TypeAlias

from unibus.bus.management.threads import begin_in_thread
from unibus.bus.pubsub.loop_call import notify_loop
from unibus.errors import RequestTimeout
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")

PIECE_BYTES: Final = 64 * 1024
PIECES_MAX: Final = 16
"""At most a megabyte is in the pipe, and in addition the data of one `put`."""

STALL_S: Final = 60.0

Put: TypeAlias = Callable[[bytes], None]


class ConsumerLeft(Exception):
    """The consumer takes no more pieces."""


class Pipe:
    """Created on the loop; `begin` starts the thread."""

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        # Counts free places. The producer blocks on it in its thread; the loop only releases, and never waits.
        self._free: Final = threading.Semaphore(PIECES_MAX)
        self._pieces: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()
        self._is_closed = False
        self._open: list[bytes] = []
        self._size = 0

    def begin(self, name: str, produce: Callable[[Put], None]) -> "asyncio.Future[None]":
        """Start the producer. The future is done when the thread has ended: then its resources are closed."""
        return begin_in_thread(name, partial(self._run, produce))

    # In the thread

    def _run(self, produce: Callable[[Put], None]) -> None:
        try:
            produce(self._put)
            if self._open:
                self._flush()
        # Nothing is put: no consumer reads the queue any more, or it has got the reason already (`_pass_on`).
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
        """In slices of PIECE_BYTES: whole messages of 100 MB as pieces would not bound the memory of the pipe."""
        piece = memoryview(b"".join(self._open))
        self._open, self._size = [], 0
        for start in range(0, len(piece), PIECE_BYTES):
            self._pass_on(bytes(piece[start : start + PIECE_BYTES]))

    def _pass_on(self, piece: bytes) -> None:
        if not self._free.acquire(timeout=STALL_S):
            log.warning("a stream was ended because its client read nothing for %d s", STALL_S)
            stalled = RequestTimeout(f"the client read nothing for {STALL_S:g} s", "read the stream without pauses")
            notify_loop(self._loop, partial(self._pieces.put_nowait, stalled))
            raise ConsumerLeft
        # After the acquire and not before: `close` sets the flag and then frees a place, so a blocked producer sees it
        # here.
        if self._is_closed:
            raise ConsumerLeft
        notify_loop(self._loop, partial(self._pieces.put_nowait, piece))

    # On the loop

    async def take(self) -> bytes | None:
        """The next piece, None at the end. Raises what the producer raised."""
        piece = await self._pieces.get()
        if isinstance(piece, BaseException):
            raise piece
        # After the piece is taken. For the end marker, too, which took no place: there is no further piece.
        self._free.release()
        return piece

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """All pieces, once the first one is ready: an error of the producer before that is raised here."""
        pieces = self._pieces_from(await self.take())
        await anext(pieces)  # A generator that was never entered has no `finally`: nothing would end the producer.
        return pieces

    async def _pieces_from(self, first: bytes | None) -> AsyncGenerator[bytes, None]:
        """Raises when the producer fails: the sender must then abort its response, because a normal end would mark it
        as complete."""
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
        self._free.release()  # A blocked producer wakes up and sees `_is_closed`.
