"""Reads standard input without ever missing Ctrl-C.

Python runs signal handlers between two bytecodes. A signal that arrives after the last check and before a blocking read
would be handled when the read returns, which may be never. So `select` waits for two descriptors: the input, and a pipe
into which the signal itself writes (`signal.set_wakeup_fd`).
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
        """The available bytes, at most `size`. Waits for the first one; returns b"" at the end of the input."""


class AwakeSource:
    def __init__(self, source: BinaryIO, wakes: int) -> None:
        self._source = source
        self._wakes = wakes

    def read1(self, size: int, /) -> bytes:
        # If a signal woke it, the signal's handler has run, and raised, before the next line.
        select.select([self._source.fileno(), self._wakes], [], [])
        return self._source.read1(size)  # type: ignore[attr-defined,no-any-return]


def _can_wait_for(source: BinaryIO) -> bool:
    try:
        source.fileno()
    except OSError:
        return False  # Not a file, but an object in memory.
    return sys.platform != "win32" and threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def awake(source: BinaryIO) -> Iterator[InputSource]:
    """The source with a `read1` that signals interrupt; unchanged where `select` cannot wait for it."""
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
