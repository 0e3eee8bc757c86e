"""The output of the demo: a live table on a terminal, plain lines everywhere else."""

import time
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from unibus.cli.demo.table import DemoWatch, lines, table

REFRESH_S: Final = 0.125
NOTES_SHOWN: Final = 6
WIDE_COLUMNS: Final = 100
"""A terminal of this width has space for the rates."""

FRAME_LINES: Final = 8 + NOTES_SHOWN
"""Lines of the terminal that hold no row: the title, the text, the borders of the table, the notes and the cursor."""


class Screen(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def begin(self, title: str, text: str) -> None:
        """Starts a stage."""

    def note(self, text: str) -> None:
        """Adds a line that stays."""

    def refresh(self) -> None:
        """Called often; redraws the figures at intervals of REFRESH_S."""

    def summary(self, seconds: float) -> None:
        """Prints the totals, after the bus was closed."""


class LiveScreen:
    """Redraws one frame in place. It has no thread: the stages call `refresh`."""

    def __init__(self, console: Console, watch: DemoWatch) -> None:
        self._console = console
        self._watch = watch
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._title = ""
        self._text = ""
        self._notes: list[str] = []
        self._next_s = 0.0

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
        if now or moment_s >= self._next_s:
            self._next_s = moment_s + REFRESH_S
            self._live.update(self._frame(), refresh=True)

    def summary(self, seconds: float) -> None:
        self._console.print(table(self._watch.rows(), rates=False))
        for note in self._notes:
            self._console.print(note, markup=False)
        self._console.print(_last_line(self._watch, seconds), markup=False)

    def _frame(self) -> Group:
        # The newest channels, as many as the height of the terminal allows.
        rows = self._watch.rows()[-max(1, self._console.height - FRAME_LINES) :]
        notes = [Text(note, no_wrap=True, overflow="ellipsis") for note in self._notes[-NOTES_SHOWN:]]
        title = Text(self._title, style="bold", no_wrap=True, overflow="ellipsis")
        drawn = table(rows, rates=self._console.width >= WIDE_COLUMNS)
        return Group(title, Text(self._text, no_wrap=True, overflow="ellipsis"), drawn, *notes)


class PlainScreen:
    """Prints each line at once, and the figures at the end."""

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
        # Never wrapped, so that tools such as grep find whole lines.
        self._console.print(line, markup=False, soft_wrap=True)


def _last_line(watch: DemoWatch, seconds: float) -> str:
    rows = watch.rows()
    published, dispatched = sum(row.published for row in rows), sum(row.dispatched for row in rows)
    dead = sum(row.dead_letters for row in rows)
    return f"{published:,} published, {dispatched:,} dispatched, {dead:,} dead-lettered in {seconds:.1f} s"
