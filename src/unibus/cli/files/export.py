"""`unibus export`: a whole bus, or some of its queues, as a file of JSON lines. Also beside the process that owns it.

The file has its name only when it is complete and on the disk: what is there under the name can be imported.
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
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to write; - for the output.", show_default=False)],
    queue: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this queue, topic or subscription. May be repeated."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    url: Url = DEFAULT_STORE,
) -> None:
    """Write queues, topics and subscriptions with their messages to a file.

    All of it as it is at one moment, also while another process works with the store. `unibus import` reads it.
    """
    with managed(url) as bus, _target(file, force) as put, bar() as progress:
        exported = bus.export(put, progress, queue or ())
    _tell(exported, file)


@contextlib.contextmanager
def _target(file: str, force: bool) -> "Iterator[Callable[[bytes], object]]":
    if file == STDOUT:
        if is_terminal():
            raise UsageError("an export is not for a terminal", "name a file, or pipe it into another program")
        yield write
        flush()
        return
    path = Path(file)
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}", "make it first")
    if path.exists() and not force:
        raise UsageError(f"{file} is there already", "--force writes over it")
    # Messages may be nobody else's business.
    part = path.with_name(f"{path.name}.part{os.getpid()}")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            yield out.write
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _tell(exported: Exported, file: str) -> None:
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
