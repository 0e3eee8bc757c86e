"""`unibus server`: the status and the log of the server that owns a file, or of the one of `--url`, and stopping it."""

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from unibus.cli.connection.bus_option import DEFAULT_STORE, Url, is_server, store_url
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.terminal.shared_options import LIMIT_METAVAR, LIMIT_NAMES, limit_of
from unibus.errors import AnswerInvalid, ServerUnavailable, StoreUnavailable

if TYPE_CHECKING:
    from unibus.bus.management.settings.server import ServerStatus
    from unibus.client.client import Client

server = typer.Typer(name="server", help="Show the status and log of a running server, or stop it.")

POLL_S: Final = 0.1
LINES_MAX: Final = 10_000


@server.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


class ShownLogLine(msgspec.Struct, frozen=True):
    number: int
    at_ns: int
    level: str
    text: str


class LogLines(msgspec.Struct, frozen=True):
    lines: list[ShownLogLine]


class Stopping(msgspec.Struct, frozen=True):
    connections: int
    requests_in_flight: int


@contextlib.contextmanager
def connected(given: str) -> "Iterator[Client]":
    """The client of the server at an address, or on a file. Raises ServerUnavailable if no server has the file open."""
    from unibus.cli.connection.servers import client_of, server_of_store

    client = client_of(given) if is_server(given) else server_of_store(store_url(given))
    if client is None:
        raise ServerUnavailable(
            f"no server of this user has {given} open",
            f"`unibus serve {given}` starts one; --url names another file or server",
        )
    with contextlib.closing(client):
        yield client


@server.command()
def status(url: Url = DEFAULT_STORE) -> None:
    """Show version, store, uptime, connections and rates. Takes a second, because rates are measured."""
    with connected(url) as client:
        found = _measured(client)
    if not is_terminal():
        write_json(found)
        flush()
        return
    for label, text in _lines(found):
        typer.echo(f"{label:<14}{printable(text)}")


def _measured(client: "Client") -> "ServerStatus":
    """The second event of a live status is the first one with rates: a rate needs two measurements."""
    from unibus.bus.management.settings.server import ServerStatus
    from unibus.client.answers import record_of
    from unibus.client.events import parsed

    seen = 0
    for event in parsed(client.pieces("server/live")):
        seen += event.kind == "status"
        if seen == 2:
            return record_of(event.data, ServerStatus)
    raise AnswerInvalid("the server closed the stream of its status", "it may be stopping; run the command again")


def _lines(found: "ServerStatus") -> Iterator[tuple[str, str]]:
    from unibus.cli.entities.entities import size

    yield "server", f"unibus {found.version} ({found.build}), {found.python}, process {found.pid}"
    yield "store", f"{found.store}  {found.durability}"
    yield "health", ", ".join([found.health, *found.reasons])
    yield "up", _passed(found.uptime_s)
    yield "connections", f"{found.connections:,}, requests in flight {found.requests_in_flight:,}"
    rates = (found.requests_per_s, found.in_per_s, found.out_per_s)
    yield (
        "rates",
        "requests {}, in {}, out {} per second".format(*["–" if each is None else f"{each:g}" for each in rates]),
    )
    if found.entities is not None:
        yield "entities", f"{found.entities:,} with {found.active or 0:,} active and {found.dead or 0:,} dead messages"
    yield "messages", f"{found.messages:,}, history {size(found.history_bytes)}"


def _passed(seconds: float) -> str:
    whole = int(seconds)
    days, hours, minutes = whole // 86_400, whole // 3_600 % 24, whole // 60 % 60
    return f"{days} d {hours} h {minutes} min" if whole >= 3_600 else f"{minutes} min {whole % 60} s"


@server.command()
def stop(url: Url = DEFAULT_STORE) -> None:
    """Stop the server. It finishes the requests in flight; this command returns when its process has ended."""
    from unibus.bus.management.settings.server import ServerStatus

    with connected(url) as client:
        pid = client.get("server", ServerStatus).pid
        began = client.post("server/stop", Stopping)
        aside(f"stopping, with {began.connections:,} connections and {began.requests_in_flight:,} requests in flight")
        while not _has_ended(client, pid):
            time.sleep(POLL_S)
    if is_terminal():
        typer.echo("stopped")
    else:
        write_json({"stopped": True, "pid": pid})
        flush()


def _has_ended(client: "Client", pid: int) -> bool:
    """Checks the process of a server on this machine, and the port of one elsewhere."""
    from unibus.bus.management.settings.server import ServerStatus
    from unibus.stores.files.lock_holder import is_alive

    if client.address.is_local:
        return not is_alive(pid) or _is_zombie(pid)
    try:
        return client.get("server", ServerStatus).pid != pid
    except StoreUnavailable:
        return True


def _is_zombie(pid: int) -> bool:
    """Whether the process has ended and its parent has not read the exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False


@server.command()
def logs(
    limit: Annotated[
        str,
        typer.Option(
            *LIMIT_NAMES,
            metavar=LIMIT_METAVAR,
            help="At most this number of lines, the newest; all: no limit. 0 with --follow: only new lines.",
        ),
    ] = "50",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue until Ctrl-C or until the server ends.")
    ] = False,
    url: Url = DEFAULT_STORE,
) -> None:
    """Show the last lines of the server's log, and follow it."""
    wanted = limit_of(limit, 0 if follow else 1, LINES_MAX)
    count = LINES_MAX if wanted is None else wanted
    with connected(url) as client:
        for line in _followed(client, count) if follow else client.get("server/logs", LogLines, {"count": count}).lines:
            _show(line)
            if follow:
                flush()
    flush()


def _followed(client: "Client", count: int) -> Iterator[ShownLogLine]:
    from unibus.client.answers import record_of
    from unibus.client.events import parsed

    for event in parsed(client.pieces("server/logs", {"count": count, "follow": 1})):
        if event.kind == "line":
            yield record_of(event.data, ShownLogLine)


def _log_text(line: ShownLogLine) -> str:
    """With time and level, as the server prints it. Lines of the audit log are JSON that contains both."""
    if line.text.startswith("{"):
        return line.text
    at = datetime.fromtimestamp(line.at_ns / 1e9, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1_000:03}Z {line.level} {line.text}"


def _show(line: ShownLogLine) -> None:
    if is_terminal():
        typer.echo(printable(_log_text(line)))
    else:
        write_json(line)
