"""Ends the cycle of a log handler that publishes to a channel whose handler fails.

    a delivery fails ──▶ a line is logged ──▶ the log handler publishes it ──▶ that delivery fails ──▶ …

While a line about a failure is logged, the bus knows the thread. A message that this thread publishes meanwhile comes
from a log handler, and lines about its failures go to the error stream and not to the log: each line of the log then
causes a bounded number of lines. A log handler that publishes in a thread of its own (`QueueListener`) is not seen.

The set of threads is empty except while a failure is logged, so a publish pays for one look at an empty set.
"""

from _thread import get_ident
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

FED_MAX: Final = 10_000
"""Messages of log handlers that are remembered; the oldest are forgotten first."""


class LogFeedback:
    """The threads of one bus that log a failure, and the messages that they published meanwhile."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self._fed: dict[str, None] = {}

    def note(self, message_id: str) -> None:
        """A message is published while failures are logged: remember it if this thread does both."""
        if get_ident() in self.threads:
            if len(self._fed) >= FED_MAX:
                self._fed.pop(next(iter(self._fed)), None)
            self._fed[message_id] = None

    def is_fed(self, message_id: str) -> bool:
        """Whether a log handler published the message."""
        return message_id in self._fed

    @contextmanager
    def logging(self) -> Iterator[None]:
        """A line is logged in this thread."""
        thread = get_ident()
        if thread in self.threads:  # A line inside of a line: the outer one removes the thread.
            yield
            return
        self.threads.add(thread)
        try:
            yield
        finally:
            self.threads.discard(thread)
