"""`unibus capture`: write the history of a store as sealed Parquet segments, in a process beside the owner.

It can be killed at any moment: a sealed segment is complete, the next start continues after the last one, and no event
is captured twice.
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
from unibus.cli.terminal.durations import METAVAR, seconds_of
from unibus.cli.terminal.folders import check_can_write
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside, flush, is_terminal, write_json
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.shared_options import Json
from unibus.cli.terminal.signals import stopping
from unibus.counting import counted
from unibus.errors import StoreUnavailable, UsageError
from unibus.extras import install_extra
from unibus.stores.files.local_folder import local_folder

if TYPE_CHECKING:
    from unibus.capture.capturing import CaptureProgress, Capturing
    from unibus.capture.settings import Policy, Rotation
    from unibus.stores.seam.store_view import HistoryReader

DEFAULT_FOLDER: Final = "unibus-capture"
NICE: Final = 10
"""The bus goes first: a capture that falls behind catches up later, but a delayed bus delays its users."""

NONE: Final = "none"
_STATUS_HINT: Final = "the store comes first: `unibus capture --status [URL] [DIR]`"


@dataclass(frozen=True)
class CaptureOptions:
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="The store: a URL, or the path of a file. With --status: to show the lag; may be left out.",
            show_default="UNIBUS_URL",
        ),
    ] = None
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR",
            help="The directory with the segments.",
            show_default=DEFAULT_FOLDER,
        ),
    ] = None
    rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="Finish a file (a segment) at this number of events.")
    ] = 1_000_000
    bytes: Annotated[str, typer.Option(metavar="SIZE", help="Finish a segment at about this size.")] = "128MB"
    every: Annotated[str, typer.Option(metavar=METAVAR, help="Finish a segment after this time.")] = "2s"
    once: Annotated[bool, typer.Option("--once", help="Capture all existing events, then end.")] = False
    keep: Annotated[str | None, typer.Option(metavar=METAVAR, help="Remove segments after this time; none: never.")] = (
        None
    )
    bodies: Annotated[bool | None, typer.Option(help="Whether to capture bodies.", show_default="yes")] = None
    bodies_keep: Annotated[
        str | None, typer.Option(metavar=METAVAR, help="Remove bodies after this time; none: never.")
    ] = None
    redact: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="What to leave out of bodies and headers of the channels that match PATTERN: PATTERN=drop, =hash, "
            "=fields:a.b,c or =headers:name. May be repeated; none: remove all rules.",
        ),
    ] = None
    cursor: Annotated[
        str, typer.Option(metavar="NAME", help="The name by which the store remembers how far it is.")
    ] = "capture"
    status: Annotated[bool, typer.Option("--status", help="Show the status of a capture: `--status [URL] [DIR]`.")] = (
        False
    )
    compact: Annotated[bool, typer.Option("--compact", help="Merge small segments: `--compact [DIR]`.")] = False
    json: Json = False
    while_stdin: Annotated[bool, typer.Option("--while-stdin", hidden=True)] = False


@with_options(CaptureOptions)
def capture(options: CaptureOptions) -> ExitCode:
    """Capture the history of a store as Parquet files.

    It runs beside the process that owns the store, until Ctrl-C; with --once it ends after the existing events. Each
    event is captured once, even if this process or the owner is killed. The options --keep, --bodies, --bodies-keep and
    --redact are stored in DIR and apply until they are changed.
    """
    check_extra()
    if options.status:
        url, folder = _status_arguments(options.where, options.folder)
        _show_status(local_folder(folder, "a capture"), url, options.json)
    elif options.compact:
        _compact(_compact_argument(options.where, options.folder), _rotation(options))
    else:
        _capture(options)
    return ExitCode.OK


def _status_arguments(first: str | None, second: str | None) -> tuple[str | None, str]:
    """The store, if one is given, and the directory: `[URL] [DIR]`, as without --status. One argument may be either."""
    if second is None:
        return (first, DEFAULT_FOLDER) if first and _is_store(first) else (None, first or DEFAULT_FOLDER)
    if _is_store(second) and not (first and _is_store(first)):
        raise UsageError(f"{second} is a store, not a capture directory", _STATUS_HINT)
    return first, second


def _compact_argument(first: str | None, second: str | None) -> str:
    if second is not None:
        raise UsageError("--compact takes one argument, the directory", "use `unibus capture --compact [DIR]`")
    return local_folder(first or DEFAULT_FOLDER, "a capture")


def _is_store(given: str) -> bool:
    from unibus.stores.schemes import is_store_scheme

    scheme, separator, _ = given.partition("://")
    return is_store_scheme(scheme) if separator else Path(given).is_file()


def check_extra() -> None:
    """Raises UsageError if pyarrow is not installed."""
    if find_spec("pyarrow") is None:
        raise UsageError("capturing needs pyarrow, which is not installed", install_extra("capture"))


# Options


def _rotation(options: CaptureOptions) -> "Rotation":
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
        raise UsageError(f"{option} {text!r} is not a size", "for example 64MB")
    return found


def _policy(options: CaptureOptions, before: "Policy") -> "Policy":
    """The policy that is stored in the directory, with the options of this call applied."""
    import msgspec

    from unibus.capture.redaction import rule_of

    given: dict[str, object] = {}
    for name, text in (("keep_s", options.keep), ("bodies_keep_s", options.bodies_keep)):
        if text is not None:
            option = "--" + name.removesuffix("_s").replace("_", "-")
            given[name] = None if text == NONE else seconds_of(option, text)
    if options.bodies is not None:
        given["bodies"] = options.bodies
    if options.redact:
        given["redact"] = () if options.redact == [NONE] else tuple(rule_of(text) for text in options.redact)
    return msgspec.structs.replace(before, **given)


# Capturing


def _capture(options: CaptureOptions) -> None:
    from unibus.capture.capturing import Capturing
    from unibus.stores.schemes import open_history

    where = options.where or os.environ.get("UNIBUS_URL")
    if not where:
        raise UsageError("no store is given", "use `unibus capture URL [DIR]`, or set UNIBUS_URL")
    folder = local_folder(options.folder or DEFAULT_FOLDER, "a capture")
    url = _store(where)
    check_can_write("unibus capture URL DIR", folder)
    _check_not_foreign(folder)
    rotation, policy = _rotation(options), _policy(options, _policy_before(folder))
    with contextlib.closing(open_history(url)) as reader:
        capturing = Capturing(reader, folder, rotation, policy, cursor=options.cursor)
        _lower_priority()
        with (
            contextlib.closing(capturing),
            stopping("sealing the last segment; press Ctrl-C again to end at once") as stop,
        ):
            _run(capturing, options, stop)
            _report(capturing.progress, folder)


def _store(where: str) -> str:
    """The URL of the store, with hints for this command, which has no --url."""
    try:
        return store_url(where)
    except StoreUnavailable as error:
        hint = "`unibus send` creates it; `unibus capture URL [DIR]` or UNIBUS_URL names another store"
        raise StoreUnavailable(error.what, hint) from error
    except UsageError as error:
        raise UsageError(error.what, error.hint.replace("--url ", "unibus capture ")) from error


_OURS: Final = ("capture.", "manifest.jsonl", "segments", "bodies", "lost+found", ".")
"""Prefixes of names that may exist before capture.json: from a start that was killed at once, and from the system."""


def _check_not_foreign(folder: str) -> None:
    """Raises UsageError for a folder with other files, before anything is written into it."""
    from unibus.capture.manifest import is_capture

    if os.path.isdir(folder) and not is_capture(folder):
        foreign = sorted(name for name in os.listdir(folder) if not name.startswith(_OURS))
        if foreign:
            raise UsageError(
                f"{folder} is not a capture directory: it contains {foreign[0]!r}", "name a new or empty folder"
            )


def _check_folder(folder: str) -> None:
    """Raises StoreUnavailable for a file, which may be a store."""
    if Path(folder).is_file():
        raise StoreUnavailable(
            f"{folder} is a file, not a capture directory",
            "use `unibus capture --compact [DIR]`, or `--status [URL] [DIR]`",
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
            aside("capturing; press Ctrl-C to end")
        capturing.run(stop, shown)
        if options.while_stdin:
            capturing.finish()


def _until_stdin_ends(stop: threading.Event) -> None:
    """The bus that started this process holds the other end of the pipe, which closes with the bus or its process."""
    while os.read(0, 4_096):
        pass
    stop.set()


def _lower_priority() -> None:
    """Lowers the priority of this process, so that the bus is not slowed down."""
    from unibus.capture.capturing import limit_resources

    limit_resources()
    if hasattr(os, "nice"):
        os.nice(max(0, NICE - os.nice(0)))


@contextlib.contextmanager
def _line(once: bool) -> "Iterator[Callable[[CaptureProgress], None] | None]":
    """A line with the progress, if the error stream is a terminal."""
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


def _report(progress: "CaptureProgress", folder: str) -> None:
    if is_terminal():
        pruned = counted(progress.missed, "was", "were")
        missed = f"; {pruned} pruned from history before the capture read them" if progress.missed else ""
        typer.echo(f"captured {_counts(progress, ' in ')}{missed}")
    else:
        write_json({"folder": folder, **asdict(progress)})
    flush()


# Status and compaction


def _show_status(folder: str, url: str | None, as_json: bool) -> None:
    from unibus.capture.manifest import load_about
    from unibus.capture.status import status_of
    from unibus.stores.schemes import open_history

    _check_folder(folder)
    load_about(folder)  # Raises if it is no capture, before the store is opened.
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


def _compact(folder: str, rotation: "Rotation") -> None:
    from unibus.capture.compacting import compact
    from unibus.capture.manifest import load_about
    from unibus.capture.segments import SegmentWriter

    _check_folder(folder)
    about = load_about(folder)
    with contextlib.closing(SegmentWriter(folder, about.domain)) as writer:
        before = len(writer.manifest.segments)
        compact(writer, rotation, by_hand=True)
        after = len(writer.manifest.segments)
    if is_terminal():
        typer.echo(f"{counted(before, 'segment is', 'segments are')} {after:,} now")
    else:
        write_json({"folder": folder, "before": before, "after": after})
    flush()
