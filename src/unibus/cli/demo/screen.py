"""Where the demo is told: a live table in a terminal, plain lines everywhere else."""

import time
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from unibus.cli.demo.table import DemoWatch, lines, table
from unibus.counting import counted

REFRESH_S: Final = 0.125
NOTES_SHOWN: Final = 6
# Title, text, table borders, notes and the line where the cursor rests: what a terminal needs besides the rows.
WIDE_COLUMNS: Final = 100
"""From here on the rates fit in."""

FRAME_LINES: Final = 8 + NOTES_SHOWN


class Screen(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def begin(self, title: str, text: str) -> None:
        """A new stage."""

    def note(self, text: str) -> None:
        """One line that stays."""

    def refresh(self) -> None:
        """Called often; shows the figures anew when it is time."""

    def summary(self, seconds: float) -> None:
        """The last words, after everything was closed."""


class LiveScreen:
    """Redraws one frame in place. Nothing happens in a thread of its own: the story calls `refresh`."""

    def __init__(self, console: Console, watch: DemoWatch) -> None:
        self._console = console
        self._watch = watch
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._title = ""
        self._text = ""
        self._notes: list[str] = []
        self._due_s = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def begin(self, title: str, text: str) -> None:
        self._title, self._text = title, text
        self.refresh(now=True)

    def note(self, text: str) -> None:
        self._notes.append(text)
        self.refresh(now=True)

    def refresh(self, now: bool = False) -> None:
        moment_s = time.monotonic()
        if now or moment_s >= self._due_s:
            self._due_s = moment_s + REFRESH_S
            self._live.update(self._frame(), refresh=True)

    def summary(self, seconds: float) -> None:
        self._console.print(table(self._watch.rows(), rates=False))
        for note in self._notes:
            self._console.print(note, markup=False)
        self._console.print(_last_line(self._watch, seconds), markup=False)

    def _frame(self) -> Group:
        # The newest channels, as many as the terminal is high.
        rows = self._watch.rows()[-max(1, self._console.height - FRAME_LINES) :]
        notes = [Text(note, no_wrap=True, overflow="ellipsis") for note in self._notes[-NOTES_SHOWN:]]
        title = Text(self._title, style="bold", no_wrap=True, overflow="ellipsis")
        drawn = table(rows, rates=self._console.width >= WIDE_COLUMNS)
        return Group(title, Text(self._text, no_wrap=True, overflow="ellipsis"), drawn, *notes)


class PlainScreen:
    """Lines as they happen, the figures once, at the end."""

    def __init__(self, console: Console, watch: DemoWatch) -> None:
        self._console = console
        self._watch = watch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def begin(self, title: str, text: str) -> None:
        self._print(title)
        self._print(f"    {text}")

    def note(self, text: str) -> None:
        self._print(f"    {text}")

    def refresh(self) -> None:
        return None

    def summary(self, seconds: float) -> None:
        for line in lines(self._watch.rows()):
            self._print(line)
        self._print(_last_line(self._watch, seconds))

    def _print(self, line: str) -> None:
        # A line is a line, however narrow the reader: whoever pipes wants to search it.
        self._console.print(line, markup=False, soft_wrap=True)


def _last_line(watch: DemoWatch, seconds: float) -> str:
    rows = watch.rows()
    published, dispatched = sum(row.published for row in rows), sum(row.dispatched for row in rows)
    dead = sum(row.dead_letters for row in rows)
    return f"{published:,} published, {dispatched:,} dispatched, {counted(dead, 'dead letter')} in {seconds:.1f} s"
