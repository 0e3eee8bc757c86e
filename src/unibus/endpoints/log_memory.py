"""The last lines of a server's log, in memory: for operators who ask the server itself.

Bounded in lines and bytes, whatever is logged. The lines are those that the log has, which never hold secrets.
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
    """`lines` are the last of all, `errors` the last warnings and errors. Handlers are called from any thread."""

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
        except Exception as error:  # Who logs must not fail for that.
            text = f"a line that cannot be written: {error!r:.200}"
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
        """The lines after that one, as far as they are kept."""
        with self._guard:
            first = self._lines[0].number if self._lines else self._number + 1
            return [self._lines[at] for at in range(max(0, number + 1 - first), len(self._lines))]

    def watch(self, call: Callable[[], None]) -> Callable[[], None]:
        """Called after each line, from any thread, until it is stopped by what this returns."""
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
    """Without time and level, which a line has beside its text."""

    def format(self, record: logging.LogRecord) -> str:
        return self.text_of(record)
