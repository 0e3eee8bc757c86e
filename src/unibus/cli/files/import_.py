"""`unibus import`: what `unibus export` wrote, into a store. Each message once, also when it is stopped on the way."""

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
    file: Annotated[str, typer.Argument(metavar="FILE", help="What to read; - for the input.", show_default=False)],
    url: Url = DEFAULT_STORE,
) -> None:
    """Read an export into a store, which is made if it is missing.

    The file is checked first. A message is imported once: stopped, the same command goes on with the rest, and once
    it is complete it says so. Entities that are there have to have the same settings.
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
                    f"stopped after {importing.done:,} of {importing.total:,}; the same command goes on", err=True
                )
                raise
    _tell(importing, contents, already)


# The name of the command is a word that Python keeps for itself.
import_.__name__ = "import"


@contextlib.contextmanager
def _source(file: str) -> Iterator[BinaryIO]:
    """Something that can be read twice: first to check it, then to import it."""
    if file != STDIN:
        path = Path(file)
        if not path.exists():
            raise UsageError(f"there is no file {file}", "`unibus export` writes one")
        with path.open("rb") as opened, contextlib.ExitStack() as stack:
            is_file = stat.S_ISREG(path.stat().st_mode)
            yield opened if is_file else stack.enter_context(_spooled(opened))
        return
    if sys.stdin.isatty():
        raise UsageError("an export is not typed in", "name a file, or pipe it in")
    with _spooled(sys.stdin.buffer) as spooled:
        yield spooled


@contextlib.contextmanager
def _spooled(source: BinaryIO) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as spooled:
        shutil.copyfileobj(source, spooled)
        spooled.seek(0)
        yield spooled


def _tell(importing: ImportRun, contents: "Contents", already: bool) -> None:
    steps = 0 if already else importing.total - importing.before
    if not is_terminal():
        record: dict[str, object] = {"already_imported": already, "steps": steps, "before": importing.total - steps}
        record |= {"entities": len(contents.entities), "messages": contents.messages, "sessions": contents.sessions}
        write_json({**record, "kept_states": [list(each) for each in importing.kept_states]})
        flush()
    elif already:
        typer.echo(f"already imported: {_counts(contents)}; nothing was done")
    else:
        went_on = f", of which {importing.before:,} were there from before" if importing.before else ""
        typer.echo(f"imported {_counts(contents)}{went_on}")
    for entity, session_id in importing.kept_states:
        typer.secho(
            f"session {printable(session_id)} of {printable(entity)} has a state of its own, and keeps it",
            fg="yellow",
            err=True,
        )


def _counts(contents: "Contents") -> str:
    return (
        f"{counted(len(contents.entities), 'entity', 'entities')}, {counted(contents.messages, 'message')}, "
        f"{counted(contents.sessions, 'session')}"
    )
