"""`unibus relay`: store the messages that wait in the outbox of an application's database.

A bus relays its own outboxes. This command is for the time after a crash, without the application, or for a separate
relay process. It is idempotent: relaying twice stores each message once.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.connection.management import Management, Relay
from unibus.cli.terminal.output import aside, flush, is_terminal, write_json
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.shared_options import Follow
from unibus.cli.terminal.signals import until_signal
from unibus.errors import StoreBusy

if TYPE_CHECKING:
    from unibus.bus.outbox.relay_route import Relayed

POLL_S: Final = 0.5
"""The polling interval of --follow: SQLite does not notify another process of new rows."""


@dataclass(frozen=True)
class RelayJob:
    """The options of one call."""

    file: str
    again: bool
    adopt: bool
    follow: bool


def relay(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The application's SQLite file.", show_default=False)],
    follow: Follow = False,
    again: Annotated[bool, typer.Option("--again", help="Retry transactions that the store has refused.")] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Also relay transactions that belong to another store.")
    ] = False,
    url: Url = DEFAULT_STORE,
) -> ExitCode:
    """Store the messages that wait in an application's outbox.

    Exit code 3 if no message waits, 1 if the store refuses some. Each message is stored once, however often this
    command runs; with --adopt this holds only if its own store has not relayed it yet.
    """
    with managed(url) as bus:
        relayed = until_signal(_relay(bus, RelayJob(file, again, adopt, follow)))
    if relayed.elsewhere:
        aside(f"{relayed.elsewhere} transactions belong to another store; --adopt relays them to this one")
    if relayed.set_aside:
        aside(f"{relayed.set_aside} transactions were refused; the column `refused` of unibus_outbox has the reason")
        return ExitCode.FAILED
    return ExitCode.OK if relayed.batches else ExitCode.NOTHING_MATCHED


async def _relay(bus: Management, job: RelayJob) -> "Relayed":
    async with bus.relaying(job.file) as relay_once:
        relayed = await relay_once(job.again, job.adopt)
        _show(job.file, relayed)
        while job.follow:
            await asyncio.sleep(POLL_S)
            await _poll(relay_once, job.file)
        return relayed


async def _poll(relay_once: Relay, file: str) -> None:
    try:
        relayed = await relay_once(False, False)
    except StoreBusy as error:
        aside(str(error))  # Another process holds the file: try again at the next poll.
    else:
        if relayed.batches:
            _show(file, relayed)


def _show(file: str, relayed: "Relayed") -> None:
    if is_terminal():
        typer.echo(f"{relayed.batches} transactions relayed")
    else:
        counts = {"relayed": relayed.batches, "set_aside": relayed.set_aside, "elsewhere": relayed.elsewhere}
        write_json({"file": file, **counts})
    flush()
