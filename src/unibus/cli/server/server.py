"""`unibus server`: the server that owns a file, or the one of `--url`: how it is, its log, and how it is stopped."""

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
from unibus.errors import AnswerInvalid, ServerUnavailable, StoreUnavailable

if TYPE_CHECKING:
    from unibus.bus.management.settings.server import ServerStatus
    from unibus.client.client import Client

server = typer.Typer(name="server", help="The server of a file, or of --url: its status, its log, stopping it.")

LOOK_AGAIN_S: Final = 0.1


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
    """The server of an address, or of a file. ServerUnavailable for a file that no server has open."""
    from unibus.cli.connection.servers import client_of, server_of_store

    client = client_of(given) if is_server(given) else server_of_store(store_url(given))
    if client is None:
        raise ServerUnavailable(
            f"no server of yours has {given} open", "`unibus serve` starts one; --url names another"
        )
    with contextlib.closing(client):
        yield client


@server.command()
def status(url: Url = DEFAULT_STORE) -> None:
    """Show version, store, uptime, connections and rates. It takes a second: rates are measured."""
    with connected(url) as client:
        found = _measured(client)
    if not is_terminal():
        write_json(found)
        flush()
        return
    for label, text in _lines(found):
        typer.echo(f"{label:<14}{printable(text)}")


def _measured(client: "Client") -> "ServerStatus":
    """The second event of a live status has rates; the first has nothing to compare with."""
    from unibus.bus.management.settings.server import ServerStatus
    from unibus.client.answers import record_of
    from unibus.client.events import parsed

    seen = 0
    for event in parsed(client.pieces("server/live")):
        seen += event.kind == "status"
        if seen == 2:
            return record_of(event.data, ServerStatus)
    raise AnswerInvalid("the server ended its answer", "is it being stopped?")


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
        "requests {}, in {}, out {} a second".format(*["–" if each is None else f"{each:g}" for each in rates]),
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
    """Stop the server: requests in flight are answered first. Returns when its process has ended."""
    from unibus.bus.management.settings.server import ServerStatus

    with connected(url) as client:
        pid = client.get("server", ServerStatus).pid
        began = client.post("server/stop", Stopping)
        aside(f"stopping, with {began.connections:,} connections and {began.requests_in_flight:,} requests in flight")
        while not _has_ended(client, pid):
            time.sleep(LOOK_AGAIN_S)
    if is_terminal():
        typer.echo("stopped")
    else:
        write_json({"stopped": True, "pid": pid})
        flush()


def _has_ended(client: "Client", pid: int) -> bool:
    """Of a server on this machine its process; of another one its port."""
    from unibus.bus.management.settings.server import ServerStatus
    from unibus.stores.files.lock_holder import is_alive

    if client.address.is_local:
        return not is_alive(pid) or _is_zombie(pid)
    try:
        return client.get("server", ServerStatus).pid != pid
    except StoreUnavailable:
        return True


def _is_zombie(pid: int) -> bool:
    """Whether it has ended and its parent has not asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False


@server.command()
def logs(
    count: Annotated[int, typer.Option("-n", "--count", min=0, max=10_000, help="How many of the last lines.")] = 50,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until Ctrl-C or the end of the server.")
    ] = False,
    url: Url = DEFAULT_STORE,
) -> None:
    """Show the last lines of the server's log, and follow it."""
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
    """With its time and level, as the server prints it; lines of the audit log are JSON that has both."""
    if line.text.startswith("{"):
        return line.text
    at = datetime.fromtimestamp(line.at_ns / 1e9, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1_000:03}Z {line.level} {line.text}"


def _show(line: ShownLogLine) -> None:
    if is_terminal():
        typer.echo(printable(_log_text(line)))
    else:
        write_json(line)
