"""`unibus replay`: show the messages that history has of a channel, or send them again.

Showing reads beside the process that owns the store. Sending again needs to own the store, or its server. A message
that is sent again keeps its id and its dedup key, so a queue with a dedup window rejects and counts the duplicates.
"""

from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Annotated

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url, not_found
from unibus.cli.connection.management import Management, Resending
from unibus.cli.terminal.confirmation import confirm
from unibus.cli.terminal.moments import METAVAR, moment_of
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.terminal.progress import bar
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.shared_options import ALL, Limit, Raw, Yes, limit_of
from unibus.cli.terminal.signals import undisturbed
from unibus.counting import counted
from unibus.errors import EntityNotFound, UsageError


@dataclass(frozen=True)
class ReplayOptions:
    channel: Annotated[
        str,
        typer.Argument(metavar="CHANNEL", help="A queue, a topic, or topic/Subscriptions/name.", show_default=False),
    ]
    after: Annotated[int | None, typer.Option(min=0, metavar="SEQ", help="Messages with a higher sequence number.")] = (
        None
    )
    since: Annotated[
        str | None, typer.Option(metavar=METAVAR, help="Messages from this time on, or since this long ago.")
    ] = None
    limit: Limit = ALL
    to: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Send the messages again, to this queue or topic.")
    ] = None
    yes: Yes = False
    raw: Raw = False
    url: Url = DEFAULT_STORE

    def begin(self) -> tuple[int, int]:
        """Where to start: a sequence number, and an instant in nanoseconds."""
        if self.after is not None and self.since is not None:
            raise UsageError("--after and --since exclude each other", "use one of them")
        since: datetime | None = None if self.since is None else moment_of("--since", self.since)
        return self.after or 0, 0 if since is None else round(since.timestamp() * 1e6) * 1_000


@with_options(ReplayOptions)
def replay(options: ReplayOptions) -> ExitCode:
    """Show the past messages of a channel, or send them again.

    History is kept for 7 days by default; the store may have another setting.

    Exit code 3 if there are no messages.
    """
    if options.raw and options.to is not None:
        raise UsageError("--raw and --to exclude each other: --raw shows messages, --to sends them", "use one of them")
    begin = options.begin()
    with managed(options.url) as bus:
        try:
            done = _show(options, bus, begin) if options.to is None else _send_again(options, options.to, bus, begin)
        except EntityNotFound:
            names = [each.name for each in bus.entities()]
            missing = options.to if options.to is not None and options.to not in names else options.channel
            raise not_found(missing, names) from None
    if not done:
        aside(f"history has no messages of {options.channel} in that range")
    return ExitCode.OK if done else ExitCode.NOTHING_MATCHED


def _show(options: ReplayOptions, bus: Management, begin: tuple[int, int]) -> int:
    from unibus.cli.terminal.message_view import MessageView

    view, shown = MessageView(options.raw), 0
    for message in islice(bus.replay(options.channel, *begin), limit_of(options.limit)):
        view.show(options.channel, message)
        shown += 1
    view.flush()
    return shown


# Sending again


def _send_again(options: ReplayOptions, target: str, bus: Management, begin: tuple[int, int]) -> int:
    resending = bus.resending(options.channel, target, *begin, limit_of(options.limit) or 0)
    if resending.total:
        if not options.yes:
            names = f"{printable(options.channel)} to {printable(target)}"
            confirm(f"send {counted(resending.total, 'message')} of {names}?")
        _run(resending, target)
    return resending.total


def _run(resending: Resending, target: str) -> None:
    """Reports the counts at the end, even after an error or Ctrl-C. Ctrl-C takes effect between two batches."""
    try:
        with bar() as progress:
            is_more = True
            while is_more:
                with undisturbed():
                    is_more = resending.send_next()
                progress(resending.sent, resending.total)
    finally:
        _report(resending, target)


def _report(resending: Resending, target: str) -> None:
    if is_terminal():
        known = f", {resending.duplicates:,} of them rejected as duplicates" if resending.duplicates else ""
        typer.echo(f"{counted(resending.sent, 'message')} sent to {printable(target)}{known}")
    else:
        write_json({"entity": target, "sent": resending.sent, "duplicates": resending.duplicates})
        flush()
