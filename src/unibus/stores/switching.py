"""How often threads of this process take turns, while a store is open that has to write.

A commit gives the interpreter up while the disk works, and has to get it back afterwards. Beside a thread that computes
that takes a switch interval each time: Python's 5 ms would make a durable send ten times slower.
"""

import os
import sys
import threading
from typing import Final

from unibus.stores.forked import renew

INTERVAL_S: Final = 0.00025


class Switching:
    """The stores that are open share it. What was there before comes back with the last of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._before_s = 0.0

    def quicken(self) -> None:
        with self._lock:
            if self._open == 0:
                self._before_s = sys.getswitchinterval()
            self._open += 1
            sys.setswitchinterval(min(sys.getswitchinterval(), INTERVAL_S))

    def restore(self) -> None:
        with self._lock:
            self._open -= 1
            unchanged = abs(sys.getswitchinterval() - INTERVAL_S) < 1e-6  # Else somebody has chosen one meanwhile.
            if self._open == 0 and unchanged:
                sys.setswitchinterval(self._before_s)

    def forget_in_child(self) -> None:
        """The stores that are open are the parent's, and none of them is ever closed here."""
        renew(self._lock)
        if self._open and abs(sys.getswitchinterval() - INTERVAL_S) < 1e-6:
            sys.setswitchinterval(self._before_s)
        self._open = 0


switching: Final = Switching()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=switching.forget_in_child)
