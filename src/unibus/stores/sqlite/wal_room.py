"""The file of a write-ahead log, kept longer than its content.

A sync after a write that makes a file longer takes about twice as long as one after a write into it: the file's own
record has to reach the disk too. So zeros are put after the end, in good time and in large steps. To SQLite they are
nothing: it stops reading a log at the first frame that does not check. From the first checkpoint on the log is written
over, and there is nothing left to do here.
"""

import os
from typing import Final

BEGIN_BYTES: Final = 256_000
"""A program that sends a few messages and ends needs no room."""

STEP_BYTES: Final = 2_000_000
AHEAD_BYTES: Final = 250_000
_NEVER: Final = 1 << 62


class WalRoom:
    def __init__(self, path: str, bytes_max: int) -> None:
        self._path = f"{path}-wal"
        self._bytes_max = bytes_max
        self._next = BEGIN_BYTES  # How much is used when there has to be more.

    def is_due(self, used: int) -> bool:
        """Whether the next write, after so many bytes, should make room first. That takes some milliseconds."""
        return used >= self._next

    def make(self, used: int) -> None:
        """Called by the one writer, between two writes."""
        wanted = min(used + STEP_BYTES, self._bytes_max)
        self._next = wanted - AHEAD_BYTES if wanted < self._bytes_max else _NEVER
        try:
            file = os.open(self._path, os.O_WRONLY)
            try:
                size = os.fstat(file).st_size
                if size < wanted:
                    os.pwrite(file, bytes(wanted - size), size)
            finally:
                os.close(file)
        except OSError:
            self._next = _NEVER  # It is only about speed; what is wrong will show with the next write.
