"""Whether the files that a store has open are still those that their names lead to.

A file that was deleted or replaced under a running store takes every write without an error, and all of it is lost
with the process. So the store looks: each time it is asked how it is, and once per second while it commits. It looks by
name only. Opening the file of a SQLite database a second time and closing it would drop the locks of the first one.
"""

import os
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from unibus.errors import StoreFailed

LOOK_EVERY_NS: Final = 1_000_000_000

Identity = tuple[int, int]
HINT: Final = "what was written since then may be lost; put the files back, and open the bus again"


def identity_of(path: str) -> Identity | None:
    """The device and the number of the file that has the name now."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


class HeldFiles:
    """`identity` tells which file a name leads to; None for no file."""

    def __init__(self, identity: Callable[[str], Identity | None] = identity_of) -> None:
        self._identity = identity
        self._held: dict[str, Identity | None] = {}
        self._next_ns = 0

    def hold(self, *paths: str) -> None:
        """From now on these names have to lead where they lead now."""
        for path in paths:
            self._held[path] = self._identity(path)

    def release(self, path: str) -> None:
        self._held.pop(path, None)

    def release_all(self) -> str:
        """The files are about to be closed. Gives what is wrong with them, as `problem` does."""
        problem = self.problem()
        self._held = {}
        return problem

    def problem(self) -> str:
        """What was deleted or replaced; empty if nothing was."""
        for path, held in list(self._held.items()):
            try:
                found = self._identity(path)
            except OSError as error:
                return f"{path} cannot be reached any more: {error.strerror or error}"
            if found != held:
                return f"{path} was {'deleted' if found is None else 'replaced'} while the store was open"
        return ""

    def check(self) -> None:
        """Called with every commit. StoreFailed, at most a second after it happened."""
        now_ns = monotonic_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + LOOK_EVERY_NS
            problem = self.problem()
            if problem:
                raise StoreFailed(problem, HINT)
