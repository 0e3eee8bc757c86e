"""`unibus import`: read an export into a store. Each message is imported once, even if the command is interrupted."""

import contextlib
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.connection.management import ImportRun
from unibus.cli.terminal.output import flush, is_terminal, printable, write_json
from unibus.cli.terminal.progress import bar
from unibus.counting import counted
from unibus.errors import UsageError

if TYPE_CHECKING:
    from unibus.bus.history.export_lines import Contents

STDIN: Final = "-"


def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file to read; - for standard input.", show_default=False)
    ],
    url: Url = DEFAULT_STORE,
) -> None:
    """Read an export into a store. A missing store is created.

    The file is checked first. Each message is imported once: after an interruption the same command continues with the
    rest, and after a complete import it changes nothing. Entities that exist must have the same settings.
    """
    from unibus.bus.history.export_lines import checked_contents

    with _source(file) as source:
        contents = checked_contents(source)
        source.seek(0)
        with managed(url, makes=True) as bus:
            importing = bus.importing(contents)
            already = importing.is_complete
            try:
                with bar() as progress:
                    importing.run(source, progress)
            except KeyboardInterrupt:
                typer.echo(
                    f"stopped after {importing.done:,} of {importing.total:,}; run the same command again to continue",
                    err=True,
                )
                raise
    _report(importing, contents, already)


# `import` is a keyword of Python, so the function has another name than the command.
import_.__name__ = "import"


@contextlib.contextmanager
def _source(file: str) -> Iterator[BinaryIO]:
    """A file that can be read twice: first to check it, then to import it."""
    if file != STDIN:
        path = Path(file)
        if not path.exists():
            raise UsageError(f"file {file} does not exist", "`unibus export` writes one")
        with path.open("rb") as opened, contextlib.ExitStack() as stack:
            is_file = stat.S_ISREG(path.stat().st_mode)
            yield opened if is_file else stack.enter_context(_spooled(opened))
        return
    if sys.stdin.isatty():
        raise UsageError("standard input is a terminal, not an export", "name a file, or pipe an export in")
    with _spooled(sys.stdin.buffer) as spooled:
        yield spooled


@contextlib.contextmanager
def _spooled(source: BinaryIO) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as spooled:
        shutil.copyfileobj(source, spooled)
        spooled.seek(0)
        yield spooled


def _report(importing: ImportRun, contents: "Contents", already: bool) -> None:
    steps = 0 if already else importing.total - importing.before
    if not is_terminal():
        record: dict[str, object] = {"already_imported": already, "steps": steps, "before": importing.total - steps}
        record |= {"entities": len(contents.entities), "messages": contents.messages, "sessions": contents.sessions}
        write_json({**record, "kept_states": [list(each) for each in importing.kept_states]})
        flush()
    elif already:
        typer.echo(f"already imported: {_counts(contents)}; nothing was changed")
    else:
        earlier = f", of which {importing.before:,} by an earlier run" if importing.before else ""
        typer.echo(f"imported {_counts(contents)}{earlier}")
    for entity, session_id in importing.kept_states:
        typer.secho(
            f"session {printable(session_id)} of {printable(entity)} already has a state, which was not replaced",
            fg="yellow",
            err=True,
        )


def _counts(contents: "Contents") -> str:
    return (
        f"{counted(len(contents.entities), 'entity', 'entities')}, {counted(contents.messages, 'message')}, "
        f"{counted(contents.sessions, 'session')}"
    )
