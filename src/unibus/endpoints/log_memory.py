"""The last lines of a server's log, in memory, for the operations that show the log.

Bounded in lines and in bytes, whatever is logged. The lines are the same as in the log, so they contain no secrets.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from unibus.endpoints.log_lines import LOGGERS, TextLines

LINES_MAX: Final = 1_000
BYTES_MAX: Final = 1_000_000
ERRORS_MAX: Final = 100
LINE_CHARS_MAX: Final = 10_000


@dataclass(frozen=True)
class LogLine:
    """`number` counts from 1 without gaps. `text` is the line without its time and level."""

    number: int
    at_ns: int
    level: str
    text: str


class RecentLog(logging.Handler):
    """Keeps the last lines, and in `errors` the last warnings and errors. `emit` is called from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_Texts())
        self.errors: deque[LogLine] = deque(maxlen=ERRORS_MAX)
        self._lines: deque[LogLine] = deque()
        self._bytes = 0
        self._number = 0
        self._guard = threading.Lock()
        self._calls: list[Callable[[], None]] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)[:LINE_CHARS_MAX]
        except Exception as error:  # A defective log call must not raise in the code that logs.
            text = f"a log line that cannot be formatted: {error!r:.200}"
        with self._guard:
            self._number += 1
            line = LogLine(self._number, int(record.created * 1e9), record.levelname.lower(), text)
            self._lines.append(line)
            self._bytes += len(text)
            while len(self._lines) > LINES_MAX or self._bytes > BYTES_MAX:
                self._bytes -= len(self._lines.popleft().text)
            if record.levelno >= logging.WARNING:
                self.errors.append(line)
            calls = self._calls
        for call in calls:
            call()

    @property
    def last_number(self) -> int:
        return self._number

    def after(self, number: int) -> list[LogLine]:
        """The lines after that number which are still kept."""
        with self._guard:
            first = self._lines[0].number if self._lines else self._number + 1
            return [self._lines[at] for at in range(max(0, number + 1 - first), len(self._lines))]

    def watch(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call `call` after each line, from any thread. The returned function ends that."""
        with self._guard:
            self._calls = [*self._calls, call]

        def stop() -> None:
            with self._guard:
                self._calls = [each for each in self._calls if each is not call]

        return stop

    def attach(self) -> None:
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self)

    def detach(self) -> None:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self)


class _Texts(TextLines):
    """Without time and level, which LogLine has as fields."""

    def format(self, record: logging.LogRecord) -> str:
        return self.text_of(record)
