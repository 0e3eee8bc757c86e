"""`unibus relay`: store the messages that wait in the outbox of an application's own database.

A bus relays its outboxes by itself. This is for doing it by hand, after a crash and without the application, or as a
process of its own. Doing it twice has no second effect.
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
from unibus.cli.terminal.signals import until_signal
from unibus.errors import StoreBusy

if TYPE_CHECKING:
    from unibus.bus.outbox.relay_route import Relayed

LOOK_S: Final = 0.5
"""How often --follow looks: nobody tells another process that there is something new."""


@dataclass(frozen=True)
class RelayJob:
    """What was asked for."""

    file: str
    again: bool
    adopt: bool
    follow: bool


def relay(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The application's SQLite file.", show_default=False)],
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also what the store has refused before.")] = False,
    adopt: Annotated[bool, typer.Option("--adopt", help="Also what was meant for another store.")] = False,
    url: Url = DEFAULT_STORE,
) -> ExitCode:
    """Store what waits in the outbox of an application's database.

    Exit code 3 if nothing waits, 1 if the store refuses some of it. Each message is stored once, however often this is
    done; with --adopt only if its own store had not relayed it yet.
    """
    with managed(url) as bus:
        relayed = until_signal(_relay(bus, RelayJob(file, again, adopt, follow)))
    if relayed.elsewhere:
        aside(f"{relayed.elsewhere} transactions wait for another store; --adopt takes them over")
    if relayed.set_aside:
        aside(f"{relayed.set_aside} transactions were refused; column `refused` of unibus_outbox says why")
        return ExitCode.FAILED
    return ExitCode.OK if relayed.batches else ExitCode.NOTHING_MATCHED


async def _relay(bus: Management, job: RelayJob) -> "Relayed":
    async with bus.relaying(job.file) as relay_once:
        relayed = await relay_once(job.again, job.adopt)
        _show(job.file, relayed)
        while job.follow:
            await asyncio.sleep(LOOK_S)
            await _look(relay_once, job.file)
        return relayed


async def _look(relay_once: Relay, file: str) -> None:
    try:
        relayed = await relay_once(False, False)
    except StoreBusy as error:
        aside(str(error))  # Until the process that holds it releases it.
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
