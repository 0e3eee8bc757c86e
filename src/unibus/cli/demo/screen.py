"""The output of the demo: results as lines that stay, and on a terminal a live view below them.

    terminal                                   pipe, --plain
      1/7 fan-out                                1/7 fan-out
          9,000 orders published; …                  9,000 orders published; …
      2/7 priorities                             2/7 priorities
      ┌ live view, redrawn in place ┐

The live view belongs to the stage: the table of channels, or what the stage sets with `watch`.
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from unibus.cli.demo.table import DemoRow, DemoWatch, lines, table

REFRESH_S: Final = 0.125
INDENT: Final = 4
TITLE: Final = "bold cyan"
WIDE_COLUMNS: Final = 100
"""A terminal of this width has space for the rates."""

View = Callable[[], RenderableType]


class Screen(Protocol):
    is_live: bool
    """Whether a person watches, so that pauses make sense."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def begin(self, title: str, text: str) -> None:
        """Starts a stage. The live view is the table of channels again."""

    def note(self, text: str | Text) -> None:
        """Prints a result. It stays."""

    def show(self, drawn: RenderableType) -> None:
        """Prints a tree or a table. It stays."""

    def watch(self, view: View) -> None:
        """Sets the live view of this stage."""

    def refresh(self) -> None:
        """Called often; redraws the live view at intervals of REFRESH_S."""

    def figures(self, rows: list[DemoRow]) -> None:
        """Prints the table of channels at the end, without rates."""


class LiveScreen:
    """Prints results above one frame that is redrawn in place. It has no thread: the stages call `refresh`."""

    is_live = True

    def __init__(self, console: Console, watch: DemoWatch) -> None:
        self._console = console
        self._watch = watch
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._view: View = self._table
        self._next_s = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def begin(self, title: str, text: str) -> None:
        self._console.print(Text(f"\n{title}", style=TITLE))
        self._console.print(_indented(Text(text, style="dim")))
        self._set(self._table)  # Not indented: it needs all of 80 columns.

    def note(self, text: str | Text) -> None:
        self._console.print(_indented(Text(text) if isinstance(text, str) else text))

    def show(self, drawn: RenderableType) -> None:
        # The same picture once: what was watched until now stays as the result.
        self._view = _nothing
        self._live.update(_nothing(), refresh=True)
        self._console.print(_indented(drawn))

    def watch(self, view: View) -> None:
        self._set(lambda: _indented(view()))

    def _set(self, view: View) -> None:
        self._view = view
        self._next_s = 0.0
        self.refresh()

    def refresh(self) -> None:
        moment_s = time.monotonic()
        if moment_s >= self._next_s:
            self._next_s = moment_s + REFRESH_S
            # The last line is empty, because the terminal writes ^C where the cursor is: at the end of a full line it
            # would begin another line, which the live view does not know and would not remove.
            self._live.update(Group(self._view(), ""), refresh=True)

    def figures(self, rows: list[DemoRow]) -> None:
        self._console.print("", table(rows, rates=False), "", sep="\n")

    def _table(self) -> RenderableType:
        return table(self._watch.rows(), rates=self._console.width >= WIDE_COLUMNS)


class PlainScreen:
    """Prints each result as soon as it is known, and no live view."""

    is_live = False

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def begin(self, title: str, text: str) -> None:
        print_line(self._console, Text(f"\n{title}", style=TITLE))
        self.note(Text(text, style="dim"))

    def note(self, text: str | Text) -> None:
        print_line(self._console, Text.assemble(" " * INDENT, text))

    def show(self, drawn: RenderableType) -> None:
        for line in self._console.render_lines(_indented(drawn), pad=False):
            text = Text.assemble(*[(each.text, each.style or "") for each in line])
            text.rstrip()
            print_line(self._console, text)

    def watch(self, view: View) -> None:
        return None

    def refresh(self) -> None:
        return None

    def figures(self, rows: list[DemoRow]) -> None:
        for line in ("", *lines(rows), ""):
            print_line(self._console, line)


def print_line(console: Console, line: str | Text) -> None:
    """Never wrapped: tools such as grep find whole lines, and a command can be copied."""
    console.print(line, markup=False, soft_wrap=True)


def _indented(drawn: RenderableType) -> Padding:
    return Padding(drawn, (0, 0, 0, INDENT), expand=False)


def _nothing() -> RenderableType:
    return Text("")
