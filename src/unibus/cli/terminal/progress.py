"""How far a long piece of work has come: a bar on a terminal, on the error stream, so that output stays output."""

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def bar() -> Iterator[Callable[[int, int], None]]:
    """To be called with how much is done, and how much there is."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
