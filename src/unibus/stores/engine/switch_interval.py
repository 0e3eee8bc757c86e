"""How often threads of this process take turns, while a store is open that has to write.

A commit gives the interpreter up while the disk works, and has to get it back afterwards. Beside a thread that computes
that takes a switch interval each time: Python's 5 ms would make a durable send ten times slower.
"""

import os
import sys
import threading
from typing import Final

from unibus.stores.seam.forked import renew

INTERVAL_S: Final = 0.00025


class SwitchInterval:
    """The stores that are open share it. What was there before comes back with the last of them.

    A store names itself, so that it counts once: one whose `close()` was interrupted restores a second time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[int] = set()
        self._before_s = 0.0

    def quicken(self, store: object) -> None:
        with self._lock:
            if not self._open:
                self._before_s = sys.getswitchinterval()
            self._open.add(id(store))
            sys.setswitchinterval(min(sys.getswitchinterval(), INTERVAL_S))

    def restore(self, store: object) -> None:
        with self._lock:
            unchanged = abs(sys.getswitchinterval() - INTERVAL_S) < 1e-6  # Else somebody has chosen one meanwhile.
            if self._open == {id(store)} and unchanged:
                sys.setswitchinterval(self._before_s)
            self._open.discard(id(store))

    def forget_in_child(self) -> None:
        """The stores that are open are the parent's, and none of them is ever closed here."""
        renew(self._lock)
        if self._open and abs(sys.getswitchinterval() - INTERVAL_S) < 1e-6:
            sys.setswitchinterval(self._before_s)
        self._open = set()


switching: Final = SwitchInterval()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=switching.forget_in_child)
