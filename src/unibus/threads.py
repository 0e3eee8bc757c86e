"""Threads of the bus whose start can be interrupted by Ctrl-C.

`threading.Thread.start` runs Python code before and after the system starts the thread, and KeyboardInterrupt can be
raised in either part: the caller cannot know whether the thread runs. A thread that is counted and never runs delivers
nothing, and joining it raises; one that runs and is not counted is started twice.

So the new thread and the caller both try to take one lock, and the first to take it decides. After an interrupted
start the caller calls `withdraw`: then the thread either runs already, or it never does.
"""

import threading
from _thread import allocate_lock
from collections.abc import Callable

Join = Callable[[threading.Thread, float | None], None]
"""Waits for the end of a thread, for at most the given number of seconds; None waits without a limit."""


class DaemonThread(threading.Thread):
    """A daemon thread, so that it does not delay the exit of the interpreter."""

    def __init__(self, call: Callable[[], None], name: str) -> None:
        super().__init__(target=call, name=name, daemon=True)
        self._decided = allocate_lock()

    def run(self) -> None:
        if self._decided.acquire(blocking=False):
            super().run()

    def withdraw(self) -> bool:
        """Call it after `start` raised. True: the thread never runs its call. False: it runs, and can be joined."""
        return self._decided.acquire(blocking=False)
