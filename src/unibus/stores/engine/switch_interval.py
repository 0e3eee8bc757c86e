"""The interpreter's thread switch interval while a store is open that writes to a disk.

A commit releases the interpreter lock while the disk works, and has to get it back afterwards. Beside a thread that
computes, that takes one switch interval each time: Python's default of 5 ms would make a durable send ten times slower.
"""

import os
import sys
import threading
from typing import Final

from unibus.stores.seam.forked import renew

INTERVAL_S: Final = 0.00025


class SwitchInterval:
    """Shared by all open stores; closing the last one restores the interval from before.

    Stores are counted by identity: a store whose `close()` was interrupted calls `restore` a second time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[int] = set()
        self._before_s = 0.0

    def quicken(self, store: object) -> None:
        with self._lock:
            if not self._open:
                self._before_s = sys.getswitchinterval()
            # Recorded before the interval changes: an interrupt in between leaves a store that `restore` can still
            # remove.
            self._open.add(id(store))
            sys.setswitchinterval(min(sys.getswitchinterval(), INTERVAL_S))

    def restore(self, store: object) -> None:
        with self._lock:
            unchanged = abs(sys.getswitchinterval() - INTERVAL_S) < 1e-6  # Else the program has set its own.
            if self._open == {id(store)} and unchanged:
                sys.setswitchinterval(self._before_s)
            # After the interval is restored: an interrupted call repeats both, and `discard` does not raise.
            self._open.discard(id(store))

    def forget_in_child(self) -> None:
        """The open stores are the parent's: none of them is closed in the child, so restore the interval now."""
        renew(self._lock)
        if self._open and abs(sys.getswitchinterval() - INTERVAL_S) < 1e-6:
            sys.setswitchinterval(self._before_s)
        self._open = set()


switching: Final = SwitchInterval()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=switching.forget_in_child)
