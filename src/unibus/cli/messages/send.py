"""`unibus send`: send one message, or one per line of the input. Creates the store and the queue if they are missing.

The reported counts are exact: a message counts when the store has acknowledged it, and Ctrl-C waits for that.
"""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.connection.management import Management
from unibus.cli.terminal.durations import METAVAR, seconds_of
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.terminal.signals import undisturbed
from unibus.cli.terminal.stdin import InputSource, awake
from unibus.counting import counted
from unibus.errors import MessageTooLarge, SessionRequired, UsageError
from unibus.limits import BODY_BYTES_MAX

if TYPE_CHECKING:
    from unibus.core.lifecycle.commands import SendResult

STDIN: Final = "-"
LINES_PER_BATCH: Final = 1_000
CHUNK_BYTES: Final = 1024 * 1024
PROGRESS_S: Final = 0.1


@dataclass(frozen=True)
class SendOptions:
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="A queue or a topic.", show_default=False)]
    body: Annotated[
        str, typer.Argument(metavar="BODY", help="JSON if it is valid JSON, else text; - reads standard input.")
    ] = STDIN
    lines: Annotated[bool, typer.Option("--lines", help="One message per line of the input.")] = False
    as_json: Annotated[bool, typer.Option("--as-json", help="Refuse a body that is not JSON.")] = False
    as_text: Annotated[bool, typer.Option("--as-text", help="Send text as it is, also if it is JSON.")] = False
    priority: Annotated[int | None, typer.Option(metavar="N", help="0 to 255; lower is more urgent.")] = None
    session: Annotated[str | None, typer.Option(metavar="ID", help="The session of the message.")] = None
    dedup_key: Annotated[str | None, typer.Option(metavar="KEY", help="Store it only if the key is new.")] = None
    delay: Annotated[str | None, typer.Option(metavar=METAVAR, help="Deliver it after this time: 90s, 1h30m.")] = None
    ttl: Annotated[str | None, typer.Option(metavar=METAVAR, help="Let it expire after this time: 90s, 7d.")] = None
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=TEXT", help="A header. May be repeated.")] = None
    correlation_id: Annotated[str | None, typer.Option(metavar="ID", help="The correlation id.")] = None
    durability: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="D1 survives a crash of the process, D2 a power cut.")
    ] = None
    url: Url = DEFAULT_STORE


@with_options(SendOptions)
def send(options: SendOptions) -> None:
    """Send a message. A missing queue is created.

    A line end at the end of text from standard input is removed.

    With --lines empty lines are skipped. An error ends the command, and the count says how many lines were stored.
    """
    _check(options)
    try:
        _send(options, _fields(options))
    except SessionRequired as error:
        raise SessionRequired(error.what, "add --session ID") from None


def _send(options: SendOptions, fields: dict[str, object]) -> None:
    bodies = InputBodies(options.as_json, options.as_text)
    if options.lines:
        with managed(options.url, makes=True) as bus:
            _send_lines(bus, options.queue, fields, bodies)
        return
    body = _input_body(bodies) if options.body == STDIN else bodies.read(os.fsencode(options.body))
    with managed(options.url, makes=True) as bus, undisturbed():
        [result] = bus.send(options.queue, [body], fields)
        _show(result, _seconds("--delay", options.delay))
    bodies.report()


def _check(options: SendOptions) -> None:
    if options.as_json and options.as_text:
        raise UsageError("--as-json and --as-text exclude each other", "use one of them")
    if options.lines and options.body != STDIN:
        raise UsageError("--lines reads standard input, but BODY is given, too", "use one of them")
    if options.lines and options.dedup_key is not None:
        raise UsageError(
            "--dedup-key with --lines would store the first line only: all lines have the same key", "use one of them"
        )


def _fields(options: SendOptions) -> dict[str, object]:
    """The arguments of `bus.send`, only those that were given."""
    given: dict[str, object] = {
        "priority": options.priority,
        "session_id": options.session,
        "dedup_key": options.dedup_key,
        "delay": _seconds("--delay", options.delay),
        "ttl": _seconds("--ttl", options.ttl),
        "headers": dict(map(_header, options.header)) if options.header else None,
        "correlation_id": options.correlation_id,
        "durability": options.durability,
    }
    return {name: value for name, value in given.items() if value is not None}


def _seconds(option: str, text: str | None) -> float | None:
    return None if text is None else seconds_of(option, text, zero=option == "--delay")


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--header {text!r} is not NAME=TEXT", "for example --header tenant=acme")
    return name, value


# InputBodies


class InputBodies:
    """Reads bodies: JSON if it is valid JSON, else text, else bytes. `only_json` and `only_text` decide it instead.

    A body that looks like JSON and is none is counted. It is stored, because text is allowed, and `report` names it:
    a closing brace that the shell removed would otherwise be found by the first receiver.
    """

    def __init__(self, only_json: bool = False, only_text: bool = False) -> None:
        self._only_json = only_json
        self._only_text = only_text
        self._read = 0
        self._suspect = 0
        self._why = ""

    def read(self, data: bytes) -> object:
        self._read += 1
        if not self._only_text:
            try:
                return msgspec.json.decode(data)
            except (ValueError, RecursionError) as error:
                self._refused(data, error)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return data

    def _refused(self, data: bytes, error: Exception) -> None:
        why = str(error).removeprefix("JSON is malformed: ")
        if self._only_json:
            where = "the body" if self._read == 1 else f"body {self._read}"
            raise UsageError(f"{where} is not JSON: {why}", "correct it, or leave --as-json out to send it as text")
        if data.lstrip()[:1] in (b"{", b"["):
            self._suspect += 1
            self._why = self._why or why

    def report(self) -> None:
        """On the error stream, also of a script: it is one line, and the count of standard output stays what it is."""
        if self._suspect:
            some = f"{self._suspect} of {self._read} bodies {'was' if self._suspect == 1 else 'were'}"
            what = "the body was" if self._read == 1 else some
            typer.echo(
                f"note: {what} stored as text, because it is not JSON: {printable(self._why)} "
                "(--as-json refuses such a body, --as-text sends text without this note)",
                err=True,
            )


def _input_body(bodies: InputBodies) -> object:
    _prompt()
    with awake(sys.stdin.buffer) as source:
        body = bodies.read(b"".join(iter(lambda: source.read1(CHUNK_BYTES), b"")))
    if isinstance(body, str):
        return body.removesuffix("\n").removesuffix("\r")
    return body


def _prompt() -> None:
    if sys.stdin.isatty():
        aside("reading from the terminal; Ctrl-D ends the input")


def lines_of(source: InputSource) -> Iterator[list[bytes]]:
    """Batches of the whole lines that are available: a slow input is sent at once, a fast one in large batches."""
    rest = b""
    while chunk := source.read1(CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from _batches(whole)
        if len(rest) > BODY_BYTES_MAX:
            raise MessageTooLarge(
                f"a line has more than {BODY_BYTES_MAX} bytes", "store the data elsewhere and send a reference to it"
            )
    yield from _batches([rest])


def _batches(lines: list[bytes]) -> Iterator[list[bytes]]:
    filled = [line for line in (each.removesuffix(b"\r") for each in lines) if line.strip()]
    for at in range(0, len(filled), LINES_PER_BATCH):
        yield filled[at : at + LINES_PER_BATCH]


# Sending lines


class Tally:
    """Counts what was sent. The counts are reported at the end, even after an error or Ctrl-C."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._sent = 0
        self._duplicates = 0
        self._last: SendResult | None = None
        self._live = sys.stderr.isatty()
        self._next_s = 0.0

    def add(self, results: "list[SendResult]") -> None:
        self._duplicates += sum(each.duplicate for each in results)
        self._sent += len(results)
        self._last = results[-1]
        if self._live and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + PROGRESS_S
            typer.echo(f"\r{self._sent:,} sent", err=True, nl=False)

    def report(self) -> None:
        if self._live and self._sent:
            typer.echo("\r\x1b[K", err=True, nl=False)
        level = "" if self._last is None else self._last.durability
        if is_terminal():
            known = f", {self._duplicates:,} of them rejected as duplicates" if self._duplicates else ""
            typer.echo(f"{counted(self._sent, 'message')} sent to {printable(self._queue)}{known}  {level}".rstrip())
        else:
            last = 0 if self._last is None else self._last.sequence
            counts = {"sent": self._sent, "duplicates": self._duplicates, "last_sequence": last}
            write_json({"entity": self._queue, **counts, "durability": level})
            flush()


def _send_lines(bus: Management, queue: str, fields: dict[str, object], bodies: InputBodies) -> None:
    _prompt()
    tally = Tally(queue)
    try:
        with awake(sys.stdin.buffer) as source:
            for batch in lines_of(source):
                with undisturbed():
                    tally.add(bus.send(queue, [bodies.read(line) for line in batch], fields))
    finally:
        tally.report()
        bodies.report()


def _show(result: "SendResult", delay: float | None) -> None:
    if not is_terminal():
        names = ("entity", "sequence", "id", "duplicate", "durability")
        write_json({name: getattr(result, name) for name in names})
        flush()
    elif result.duplicate:
        typer.echo(f"duplicate, nothing was stored  {printable(result.entity)}  {result.id}")
    else:
        when = "" if delay is None else f"  visible in {delay:g} s"
        typer.echo(f"sent  {printable(result.entity)} #{result.sequence}  {result.id}  {result.durability}{when}")
