"""`unibus tail`: show the last events of history, and with -f the new ones, beside the process that owns the store.

No event is missed while it is paused: events stay in history, and reading continues at the same position.
"""

import re
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url, not_found
from unibus.cli.connection.management import Management, Tail, WantedEvents
from unibus.cli.terminal.keyboard import Keys, keyboard
from unibus.cli.terminal.moments import METAVAR, moment_of
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside, check_reader, flush, is_terminal, write_json
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.shared_options import ALL, LIMIT_METAVAR, LIMIT_NAMES, Follow, limit_of

if TYPE_CHECKING:
    from rich.console import Console

    from unibus.core.lifecycle.events import Event

COUNT: Final = "10"
POLL_S: Final = 0.1
PAUSES: Final = (" ", "p")


@dataclass(frozen=True)
class TailOptions:
    channel: Annotated[
        str,
        typer.Argument(
            metavar="CHANNEL",
            help="A queue, topic or subscription; a pattern of names such as 'orders.*'; * for all.",
            show_default=False,
        ),
    ]
    follow: Follow = False
    limit: Annotated[
        str | None,
        typer.Option(
            *LIMIT_NAMES,
            metavar=LIMIT_METAVAR,
            show_default=f"{COUNT}, all with --since",
            help="At most this number: the newest ones, or the first ones with --since; all: no limit. 0 with "
            "--follow: only new events.",
        ),
    ] = None
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Only events of this kind, for example completed. May be repeated."),
    ] = None
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE", help="Only events with this value, for example message_id=…. May be repeated."
        ),
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            metavar=f"{METAVAR}|SEQ", help="From this time on, since this long ago, or after the event with this seq."
        ),
    ] = None
    url: Url = DEFAULT_STORE


@with_options(TailOptions)
def tail(options: TailOptions) -> ExitCode:
    """Show the last events of a channel's history, and follow it.

    With -f on a terminal, space or p pauses and continues, q ends.

    Exit code 3 if there were no events.
    """
    with managed(options.url) as bus:
        wanted = WantedEvents(options.channel, tuple(options.kind or ()), tuple(options.where or ()))
        tailing = Tailing(bus.tail(wanted), options)
        tailing.show_last()
        if options.follow:
            tailing.follow()
        elif not tailing.shown:
            _explain(bus, options)
        return ExitCode.OK if tailing.shown or options.follow else ExitCode.NOTHING_MATCHED


def _explain(bus: Management, options: TailOptions) -> None:
    """Why there are no events: the channel does not exist, or history has none."""
    from unibus.core.topics.pattern import is_wildcard

    known = [each.name for each in bus.entities()]
    if not is_wildcard(options.channel) and options.channel not in known:
        raise not_found(options.channel, known)
    aside("history has no such events; it keeps events for a limited time")


# Showing


class Tailing:
    """One run of the command. `shown` counts the events that were written."""

    def __init__(self, source: Tail, options: TailOptions) -> None:
        self.shown = 0
        self._source = source
        self._options = options
        default = ALL if options.since is not None else COUNT
        least = 0 if options.follow else 1
        self._limit = limit_of(default if options.limit is None else options.limit, least)
        self._console = _console() if is_terminal() else None
        self._day: date | None = None

    def show_last(self) -> None:
        if self._options.since is not None or self._limit is None:
            self._begin_since(self._options.since or "0")
            while self._show_page():
                pass
            return
        self._show(self._source.last(self._limit))

    def _begin_since(self, text: str) -> None:
        if re.fullmatch(r"\d+", text):
            self._source.begin(int(text), 0)
        else:
            self._source.begin(0, round(moment_of("--since", text).timestamp() * 1e6))

    def _show_page(self) -> bool:
        """Shows the next page. Returns True if more events may exist already."""
        events, is_more = self._source.page()
        if self._options.since is not None and self._limit is not None and not self._options.follow:
            left = self._limit - self.shown
            events, is_more = events[: max(0, left)], is_more and left > len(events)
        self._show(events)
        return is_more

    def follow(self) -> None:
        self._source.follow()
        with keyboard() as keys:
            if keys.is_available:
                aside("following; space pauses, q ends")
            key = ""
            while key != "q":
                if key in PAUSES:
                    key = self._pause(keys)
                    continue
                more = self._show_page()
                check_reader()
                key = keys.wait(0 if more else POLL_S)

    def _pause(self, keys: Keys) -> str:
        """Waits for the key that ends the pause. Returns "q", or "" to continue."""
        aside("paused; space continues")
        while (key := keys.wait(POLL_S * 10)) not in (*PAUSES, "q"):
            pass
        return "" if key in PAUSES else key

    def _show(self, events: "list[Event]") -> None:
        from unibus.bus.management.history.events import record_of, when
        from unibus.cli.terminal.event_view import line

        for event in events:
            if self._console is None:
                write_json(record_of(event))
                continue
            day = when(event.ts).astimezone().date()
            if day != self._day:
                self._day = day
                self._console.print(f"{day:%Y-%m-%d}", style="dim", markup=False)
            self._console.print(line(event), soft_wrap=True)
        if events:
            flush()
        self.shown += len(events)


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False)
