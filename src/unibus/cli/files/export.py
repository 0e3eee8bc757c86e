"""`unibus export`: write a whole bus, or some of its queues, as JSON Lines, beside the process that owns the store.

The data goes to a temporary file, which is renamed after fsync. So a file with the final name is always complete.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.connection.management import Exported
from unibus.cli.terminal.output import flush, is_terminal, write, write_json
from unibus.cli.terminal.progress import bar
from unibus.counting import counted
from unibus.errors import UsageError

STDOUT: Final = "-"


def export(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file to write; - for standard output.", show_default=False)
    ],
    queue: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this queue, topic or subscription. May be repeated."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    url: Url = DEFAULT_STORE,
) -> None:
    """Write queues, topics and subscriptions with their messages to a file.

    The export is a snapshot of one moment, and works while another process uses the store. `unibus import` reads it.
    """
    with managed(url) as bus, _target(file, force) as put, bar() as progress:
        exported = bus.export(put, progress, queue or ())
    _report(exported, file)


@contextlib.contextmanager
def _target(file: str, force: bool) -> "Iterator[Callable[[bytes], object]]":
    if file == STDOUT:
        if is_terminal():
            raise UsageError(
                "an export cannot be written to a terminal", "name a file, or pipe the output into another program"
            )
        yield write
        flush()
        return
    path = Path(file)
    if not path.parent.is_dir():
        raise UsageError(f"folder {path.parent} does not exist", "create it first")
    if path.exists() and not force:
        raise UsageError(f"{file} exists already", "--force overwrites it")
    # Readable by this user only: messages may be confidential.
    part = path.with_name(f"{path.name}.part{os.getpid()}")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            yield out.write
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _report(exported: Exported, file: str) -> None:
    if file == STDOUT or is_terminal():
        counts = (
            f"{counted(exported.entities, 'entity', 'entities')}, {counted(exported.messages, 'message')}, "
            f"{counted(exported.sessions, 'session')}"
        )
        if file != STDOUT or sys.stderr.isatty():
            typer.echo(f"exported {counts}", err=file == STDOUT)
        return
    write_json({"file": file, **{name: getattr(exported, name) for name in ("entities", "messages", "sessions")}})
    flush()
