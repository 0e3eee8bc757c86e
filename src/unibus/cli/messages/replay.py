"""`unibus replay`: what a channel has stored before, as far as history has it: to look at, or to be sent again.

Sending again needs the store, or its server; looking does not. What is sent again keeps its id and its key, so a queue
that looks for duplicates drops what it knows, and that is counted.
"""

import sys
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Annotated

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Queue, Url, not_found
from unibus.cli.connection.management import Management, Resending
from unibus.cli.terminal.moments import moment_of
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.terminal.progress import bar
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.signals import undisturbed
from unibus.counting import counted
from unibus.errors import EntityNotFound, UsageError


@dataclass(frozen=True)
class ReplayOptions:
    channel: Queue
    after: Annotated[int | None, typer.Option(min=0, metavar="SEQ", help="Those with a higher sequence.")] = None
    since: Annotated[str | None, typer.Option(metavar="10m|TIME", help="Those from then on.")] = None
    count: Annotated[int, typer.Option(min=0, help="At most so many; 0 for all.")] = 0
    to: Annotated[str | None, typer.Option(metavar="QUEUE", help="Send them again, to this queue or topic.")] = None
    yes: Annotated[bool, typer.Option("--yes", help="Send them without asking.")] = False
    raw: Annotated[bool, typer.Option("--raw", help="The bodies alone.")] = False
    url: Url = DEFAULT_STORE

    def begin(self) -> tuple[int, int]:
        """A sequence, and an instant in nanoseconds."""
        if self.after is not None and self.since is not None:
            raise UsageError("--after and --since are two beginnings", "leave one of them out")
        since: datetime | None = None if self.since is None else moment_of("--since", self.since)
        return self.after or 0, 0 if since is None else round(since.timestamp() * 1e6) * 1_000


@with_options(ReplayOptions)
def replay(options: ReplayOptions) -> ExitCode:
    """Show again what a channel has stored, or send it again.

    History is kept for 7 days unless the store says otherwise.

    Exit code 3 if there is nothing.
    """
    if options.raw and options.to is not None:
        raise UsageError("--raw shows, --to sends", "leave one of them out")
    begin = options.begin()
    with managed(options.url) as bus:
        try:
            done = _show(options, bus, begin) if options.to is None else _send_again(options, options.to, bus, begin)
        except EntityNotFound:
            names = [each.name for each in bus.entities()]
            missing = options.to if options.to is not None and options.to not in names else options.channel
            raise not_found(missing, names) from None
    if not done:
        aside(f"history has nothing of {options.channel} from there on")
    return ExitCode.OK if done else ExitCode.NOTHING_MATCHED


def _show(options: ReplayOptions, bus: Management, begin: tuple[int, int]) -> int:
    from unibus.cli.terminal.message_view import MessageView

    view, shown = MessageView(options.raw), 0
    for message in islice(bus.replay(options.channel, *begin), options.count or None):
        view.show(options.channel, message)
        shown += 1
    view.flush()
    return shown


# Sending again


def _send_again(options: ReplayOptions, target: str, bus: Management, begin: tuple[int, int]) -> int:
    resending = bus.resending(options.channel, target, *begin, options.count)
    if resending.total:
        _ask(options, f"Send {counted(resending.total, 'message')} of {options.channel} to {target}?")
        _run(resending, target)
    return resending.total


def _ask(options: ReplayOptions, question: str) -> None:
    if options.yes:
        return
    if not (is_terminal() and sys.stdin.isatty()):
        raise UsageError("there is no terminal to ask for a confirmation", "--yes sends without asking")
    typer.confirm(question, abort=True)


def _run(resending: Resending, target: str) -> None:
    """What was sent is reported in the end, also when an error or Ctrl-C is the end."""
    try:
        with bar() as progress:
            is_more = True
            while is_more:
                with undisturbed():
                    is_more = resending.send_next()
                progress(resending.sent, resending.total)
    finally:
        _tell(resending, target)


def _tell(resending: Resending, target: str) -> None:
    if is_terminal():
        known = f", {resending.duplicates:,} of them known there already" if resending.duplicates else ""
        typer.echo(f"{counted(resending.sent, 'message')} sent to {printable(target)}{known}")
    else:
        write_json({"entity": target, "sent": resending.sent, "duplicates": resending.duplicates})
        flush()
