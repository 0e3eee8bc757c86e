"""Threads of the bus whose start can be interrupted by Ctrl-C.

`threading.Thread.start` runs Python code before and after the system starts the thread, and KeyboardInterrupt can be
raised in either part: the caller cannot know whether the thread runs. A thread that is counted and never runs delivers
nothing, and joining it raises; one that runs and is not counted is started twice.

So the new thread and the caller decide by one lock: the first to take it wins. After an interrupted start the caller
calls `withdraw`: either the thread already runs, or it never will.
"""

import threading
from _thread import allocate_lock
from collections.abc import Callable

Join = Callable[[threading.Thread, float | None], None]
"""Waits for the end of a thread, for so many seconds at most."""


class DaemonThread(threading.Thread):
    """A daemon, so that it does not keep the interpreter alive."""

    def __init__(self, call: Callable[[], None], name: str) -> None:
        super().__init__(target=call, name=name, daemon=True)
        self._decided = allocate_lock()

    def run(self) -> None:
        if self._decided.acquire(blocking=False):
            super().run()

    def withdraw(self) -> bool:
        """After `start` raised: True if the thread never runs its call; False if it does, and can be joined."""
        return self._decided.acquire(blocking=False)
