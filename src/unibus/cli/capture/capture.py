"""`unibus capture`: the history of a store as sealed Parquet segments, by a process of its own beside the owner.

It may be ended at any moment in any way: what is sealed is there once, and the next start goes on after it.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.connection.bus_option import store_url
from unibus.cli.terminal.durations import seconds_of
from unibus.cli.terminal.folders import check_can_write
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside, flush, is_terminal, write_json
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.signals import stopping
from unibus.counting import counted
from unibus.errors import StoreUnavailable, UsageError
from unibus.stores.files.local_folder import local_folder

if TYPE_CHECKING:
    from unibus.capture.capturing import CaptureProgress, Capturing
    from unibus.capture.settings import Policy, Rotation
    from unibus.stores.seam.store_view import HistoryReader

DEFAULT_FOLDER: Final = "unibus-capture"
NICE: Final = 10
"""A capture that is late catches up; a bus that has to wait for the processor does not."""

NONE: Final = "none"


@dataclass(frozen=True)
class CaptureOptions:
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="The store: a URL, or the path of a file. With --status or --compact: the directory.",
            show_default="UNIBUS_URL",
        ),
    ] = None
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]",
            help="Where segments go. With --status: the store, to tell the lag.",
            show_default=DEFAULT_FOLDER,
        ),
    ] = None
    rows: Annotated[int, typer.Option(min=1, help="Seal a segment at so many events.")] = 1_000_000
    bytes: Annotated[str, typer.Option(metavar="SIZE", help="Seal it at about that size.")] = "128MB"
    every: Annotated[str, typer.Option(metavar="TIME", help="Seal it after that time.")] = "2s"
    once: Annotated[bool, typer.Option("--once", help="Take all there is, and end.")] = False
    keep: Annotated[str | None, typer.Option(metavar="TIME", help="Remove segments after that time; none: never.")] = (
        None
    )
    bodies: Annotated[bool | None, typer.Option(help="Whether bodies are kept.", show_default="yes")] = None
    bodies_keep: Annotated[
        str | None, typer.Option(metavar="TIME", help="Remove bodies after that time; none: never.")
    ] = None
    redact: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="PATTERN=drop, =hash, =fields:a.b,c or =headers:name. May be repeated; none: no rules any more.",
        ),
    ] = None
    cursor: Annotated[str, typer.Option(metavar="NAME", help="Under which name the owner sees it.")] = "capture"
    status: Annotated[bool, typer.Option("--status", help="Show how DIR is doing: `--status [DIR] [URL]`.")] = False
    compact: Annotated[bool, typer.Option("--compact", help="Put small segments together: `--compact [DIR]`.")] = False
    json: Annotated[bool, typer.Option("--json", help="The status as JSON, also on a terminal.")] = False
    while_stdin: Annotated[bool, typer.Option("--while-stdin", hidden=True)] = False


@with_options(CaptureOptions)
def capture(options: CaptureOptions) -> ExitCode:
    """Capture the history of a store as Parquet files, beside the process that owns it.

    Until Ctrl-C, or with --once all there is. Each event is captured once, whenever this or the owner is ended. What is
    kept (--keep, --bodies, --bodies-keep, --redact) is remembered in DIR, and holds until it is said anew.
    """
    check_extra()
    if options.status:
        _show_status(_directory(options), options.folder, options.json)
    elif options.compact:
        _compact(_directory(options), _roll(options))
    else:
        _capture(options)
    return ExitCode.OK


def _directory(options: CaptureOptions) -> str:
    return local_folder(options.where or DEFAULT_FOLDER, "a capture")


def check_extra() -> None:
    """What is not installed is a matter of how the command is called, as it is with the pipeline."""
    if find_spec("pyarrow") is None:
        raise UsageError("capturing needs pyarrow, which is not installed", "pip install 'unibus[capture]'")


# What was asked for


def _roll(options: CaptureOptions) -> "Rotation":
    from unibus.capture.settings import Rotation

    return Rotation(options.rows, bytes_of("--bytes", options.bytes), seconds_of("--every", options.every))


_UNITS: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def bytes_of(option: str, text: str) -> int:
    number = text.strip().upper().rstrip("KMGB")
    unit = text.strip().upper()[len(number) :]
    try:
        found = round(float(number) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        found = 0
    if found < 1:
        raise UsageError(f"{option} {text!r} is no size", "for instance 64MB")
    return found


def _policy(options: CaptureOptions, before: "Policy") -> "Policy":
    """What stands in the directory, with what was said now."""
    import msgspec

    from unibus.capture.redaction import rule_of

    said: dict[str, object] = {}
    for name, text in (("keep_s", options.keep), ("bodies_keep_s", options.bodies_keep)):
        if text is not None:
            option = "--" + name.removesuffix("_s").replace("_", "-")
            said[name] = None if text == NONE else seconds_of(option, text)
    if options.bodies is not None:
        said["bodies"] = options.bodies
    if options.redact:
        said["redact"] = () if options.redact == [NONE] else tuple(rule_of(text) for text in options.redact)
    return msgspec.structs.replace(before, **said)


# Capturing


def _capture(options: CaptureOptions) -> None:
    from unibus.capture.capturing import Capturing
    from unibus.stores.schemes import open_history

    where = options.where or os.environ.get("UNIBUS_URL")
    if not where:
        raise UsageError("which store?", "unibus capture URL [DIR], or UNIBUS_URL")
    folder = local_folder(options.folder or DEFAULT_FOLDER, "a capture")
    url = _store(where)
    check_can_write("unibus capture URL DIR", folder)
    _check_not_foreign(folder)
    roll, policy = _roll(options), _policy(options, _policy_before(folder))
    with contextlib.closing(open_history(url)) as reader:
        capturing = Capturing(reader, folder, roll, policy, cursor=options.cursor)
        _step_back()
        with contextlib.closing(capturing), stopping("sealing what was read; once more ends at once") as stop:
            _run(capturing, options, stop)
            _tell(capturing.progress, folder)


def _store(where: str) -> str:
    """With advice that holds here: this command has no --url."""
    try:
        return store_url(where)
    except StoreUnavailable as error:
        hint = "`unibus send` makes it; another store: `unibus capture URL [DIR]`, or UNIBUS_URL"
        raise StoreUnavailable(error.what, hint) from error
    except UsageError as error:
        raise UsageError(error.what, error.hint.replace("--url ", "unibus capture ")) from error


_OURS: Final = ("capture.", "manifest.jsonl", "segments", "bodies", "lost+found", ".")
"""How names begin that may be there before capture.json: of a start that was ended at once, and of the system."""


def _check_not_foreign(folder: str) -> None:
    """UsageError for a folder of somebody else's, before anything is written into it."""
    from unibus.capture.manifest import is_capture

    if os.path.isdir(folder) and not is_capture(folder):
        foreign = sorted(name for name in os.listdir(folder) if not name.startswith(_OURS))
        if foreign:
            raise UsageError(
                f"{folder} is no capture directory, and {foreign[0]!r} is in it", "name a folder that is new or empty"
            )


def _check_folder(folder: str) -> None:
    """A file stands for a store; both commands take the directory first."""
    if Path(folder).is_file():
        raise StoreUnavailable(
            f"{folder} is a file, no capture directory", "name the directory first: `unibus capture --status DIR URL`"
        )


def _policy_before(folder: str) -> "Policy":
    from unibus.capture.manifest import is_capture, load_about
    from unibus.capture.settings import Policy, policy_of

    return policy_of(load_about(folder)) if is_capture(folder) else Policy()


def _run(capturing: "Capturing", options: CaptureOptions, stop: threading.Event) -> None:
    with _line(options.once) as shown:
        if options.once:
            capturing.finish(stop, shown)
            return
        if options.while_stdin:
            threading.Thread(target=_until_stdin_ends, args=(stop,), daemon=True).start()
        else:
            aside("capturing; Ctrl-C ends it")
        capturing.run(stop, shown)
        if options.while_stdin:
            capturing.finish()


def _until_stdin_ends(stop: threading.Event) -> None:
    """The bus that started this holds the other end: it is closed with the bus, or by the end of its process."""
    while os.read(0, 4_096):
        pass
    stop.set()


def _step_back() -> None:
    """Whoever works comes first."""
    from unibus.capture.capturing import limit_resources

    limit_resources()
    if hasattr(os, "nice"):
        os.nice(max(0, NICE - os.nice(0)))


@contextlib.contextmanager
def _line(once: bool) -> "Iterator[Callable[[CaptureProgress], None] | None]":
    """One line that tells how it goes, where somebody sees it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = [SpinnerColumn(), *([BarColumn()] if once else []), TextColumn("{task.description}")]
    with Bars(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(progress: "CaptureProgress") -> None:
            missed = f", [red]{progress.missed:,} missed[/]" if progress.missed else ""
            text = f"{_counts(progress, ', ')}, {progress.behind:,} behind{missed}"
            bar.update(task, description=text, completed=progress.events, total=progress.events + progress.behind)

        yield show


def _counts(progress: "CaptureProgress", between: str) -> str:
    return between.join((counted(progress.events, "event"), counted(progress.segments, "segment")))


def _tell(progress: "CaptureProgress", folder: str) -> None:
    if is_terminal():
        forgotten = counted(progress.missed, "was", "were")
        missed = f"; {forgotten} forgotten before the capture read them" if progress.missed else ""
        typer.echo(f"captured {_counts(progress, ' in ')}{missed}")
    else:
        write_json({"folder": folder, **asdict(progress)})
    flush()


# Looking, tidying


def _show_status(folder: str, url: str | None, as_json: bool) -> None:
    from unibus.capture.status import status_of
    from unibus.stores.schemes import open_history

    _check_folder(folder)
    reader: HistoryReader | None = None
    with contextlib.ExitStack() as stack:
        if url is not None:
            reader = stack.enter_context(contextlib.closing(open_history(_store(url))))
        status = status_of(folder, reader)
    if as_json or not is_terminal():
        write_json(asdict(status))
        flush()
        return
    from unibus.cli.capture.view import lines

    for name, text in lines(status):
        typer.echo(f"{name:>10}  {text}")


def _compact(folder: str, roll: "Rotation") -> None:
    from unibus.capture.compacting import compact
    from unibus.capture.manifest import load_about
    from unibus.capture.segments import SegmentWriter

    _check_folder(folder)
    about = load_about(folder)
    with contextlib.closing(SegmentWriter(folder, about.domain)) as writer:
        before = len(writer.manifest.segments)
        compact(writer, roll, by_hand=True)
        after = len(writer.manifest.segments)
    if is_terminal():
        typer.echo(f"{counted(before, 'segment is', 'segments are')} {after:,} now")
    else:
        write_json({"folder": folder, "before": before, "after": after})
    flush()
