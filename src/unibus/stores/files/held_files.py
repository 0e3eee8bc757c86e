"""Detects that an open file of a store was deleted or replaced.

Writes to a deleted file succeed without an error, and are lost when the process ends. So the store compares the
identity of its files with what their names lead to: at each health check, and once per second while it commits. It only
calls `stat`: opening a SQLite file a second time and closing it would drop the POSIX locks that SQLite holds on it.
"""

import os
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from unibus.errors import StoreFailed

LOOK_EVERY_NS: Final = 1_000_000_000

Identity = tuple[int, int]
HINT: Final = "what was written since then may be lost; restore the files, and open the bus again"


def identity_of(path: str) -> Identity | None:
    """The device and the inode of the file that has this name now; None if there is none."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


class HeldFiles:
    """The identities of the open files. `identity` returns that of a name now; None if there is no such file."""

    def __init__(self, identity: Callable[[str], Identity | None] = identity_of) -> None:
        self._identity = identity
        # Protected by the lock of the journal, except for `problem`, which works on a copy: health checks come from any
        # thread.
        self._held: dict[str, Identity | None] = {}
        self._next_ns = 0

    def hold(self, *paths: str) -> None:
        """Record the identities of these files: from now on their names must lead to the same files."""
        for path in paths:
            self._held[path] = self._identity(path)

    def release(self, path: str) -> None:
        self._held.pop(path, None)

    def release_all(self) -> str:
        """Stop checking, before the files are closed. Returns the result of a last `problem`."""
        problem = self.problem()
        self._held = {}
        return problem

    def problem(self) -> str:
        """Names a file that was deleted or replaced; "" if there is none."""
        for path, held in list(self._held.items()):
            try:
                found = self._identity(path)
            # A folder that may not be searched any more, or a file system that is gone: the names lead nowhere, which
            # is as bad as a deletion.
            except OSError as error:
                return f"{path} cannot be read any more: {error.strerror or error}"
            if found != held:
                return f"{path} was {'deleted' if found is None else 'replaced'} while the store was open"
        return ""

    def check(self) -> None:
        """Called by every commit. Raises StoreFailed at most a second after a file was deleted or replaced."""
        now_ns = monotonic_ns()
        if now_ns >= self._next_ns:
            # Once per second: a stat for each commit would cost as much as a small write.
            self._next_ns = now_ns + LOOK_EVERY_NS
            problem = self.problem()
            if problem:
                raise StoreFailed(problem, HINT)
