"""Reading what is typed or piped in, without ever missing Ctrl-C.

Python acts on a signal between two of its steps. One that comes after the last look and before a read blocks would be
noticed when the read returns, which may be never. So the wait is one for two things: for input, and for a pipe that
the signal itself writes into.
"""

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from typing import BinaryIO, Protocol


class InputSource(Protocol):
    def read1(self, size: int, /) -> bytes:
        """What is there, at most so much; waits for the first of it, and gives nothing at the end."""


class AwakeSource:
    def __init__(self, source: BinaryIO, wakes: int) -> None:
        self._source = source
        self._wakes = wakes

    def read1(self, size: int, /) -> bytes:
        # Whatever woke it: if that was a signal, its handler has run by the next line.
        select.select([self._source.fileno(), self._wakes], [], [])
        return self._source.read1(size)  # type: ignore[attr-defined,no-any-return]


def _can_wait_for(source: BinaryIO) -> bool:
    try:
        source.fileno()
    except OSError:
        return False  # It stands in memory.
    return sys.platform != "win32" and threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def awake(source: BinaryIO) -> Iterator[InputSource]:
    """The source, as one that can be waited for. Where that is not possible it is taken as it is."""
    if not _can_wait_for(source):
        yield source  # type: ignore[misc]
        return
    wakes, woken = os.pipe()
    os.set_blocking(woken, False)
    before = signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    try:
        yield AwakeSource(source, wakes)
    finally:
        signal.set_wakeup_fd(before)
        os.close(wakes)
        os.close(woken)
