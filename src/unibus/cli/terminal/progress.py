"""A progress bar for long operations: on the error stream, and only if that is a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import typer

from unibus.cli.terminal.output import flush, is_terminal, write_json
from unibus.counting import counted

Answer = TypeVar("Answer")
Report = Callable[[int, int], None]
"""Called with (done, total)."""


@contextlib.contextmanager
def bar() -> Iterator[Report]:
    """Yields the function to report progress with."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def run_in_batches(work: Callable[[Report], Answer], noun: str) -> Answer:
    """Runs `work` with a progress bar. Ctrl-C stops it between two batches; then this says how many are done."""
    seen = (0, 0)
    try:
        with bar() as shown:

            def progress(done: int, total: int) -> None:
                nonlocal seen
                seen = done, total
                shown(done, total)

            return work(progress)
    except KeyboardInterrupt:
        _report_stopped(*seen, noun)
        raise


def _report_stopped(done: int, total: int, noun: str) -> None:
    if is_terminal():
        typer.echo(f"stopped after {done:,} of {counted(total, noun)}; run the same command again to continue")
    else:
        write_json({"stopped": True, "done": done, "total": total})
        flush()
