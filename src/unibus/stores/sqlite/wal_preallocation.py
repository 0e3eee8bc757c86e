"""Preallocates the file of the write-ahead log, so that a sync is quicker.

A sync after a write that extends a file takes about twice as long as one after a write into it: the metadata of the
file has to reach the disk, too. So zeros are appended in advance, in large steps. SQLite ignores them: it stops reading
a log at the first frame with a wrong checksum, so a crash between the two writes is harmless. After the first
checkpoint the log is overwritten from its beginning, and nothing is left to do.
"""

import os
from typing import Final

BEGIN_BYTES: Final = 256_000
"""A program that sends a few messages and ends needs no preallocation."""

STEP_BYTES: Final = 2_000_000
AHEAD_BYTES: Final = 250_000
_NEVER: Final = 1 << 62


class WalPreallocation:
    def __init__(self, path: str, bytes_max: int) -> None:
        self._path = f"{path}-wal"
        self._bytes_max = bytes_max
        self._next = BEGIN_BYTES  # The used size at which to extend the file.

    def is_due(self, used: int) -> bool:
        """Whether to extend the file before the next write; `used` bytes are written. Takes some milliseconds."""
        return used >= self._next

    def extend(self, used: int) -> None:
        """Extend the file. Called by the only writer, between two writes."""
        wanted = min(used + STEP_BYTES, self._bytes_max)
        self._next = wanted - AHEAD_BYTES if wanted < self._bytes_max else _NEVER
        try:
            # Opening and closing this file beside SQLite is safe: it holds its locks on the database and on -shm, never
            # on -wal.
            file = os.open(self._path, os.O_WRONLY)
            try:
                size = os.fstat(file).st_size
                if size < wanted:
                    os.pwrite(file, bytes(wanted - size), size)
            finally:
                os.close(file)
        except OSError:
            self._next = _NEVER  # Only speed depends on it; the next write reports what is wrong.
