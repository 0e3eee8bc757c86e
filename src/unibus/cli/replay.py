"""`unibus replay`: what a channel has stored before, as far as history has it: to look at, or to be sent again.

Sending again needs the store for itself; looking does not. What is sent again keeps its id and its key, so a queue that
looks for duplicates drops what it knows, and that is counted.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.bus_option import DEFAULT_STORE, Queue, Url, not_found, store_url
from unibus.cli.looking import looking, owning
from unibus.cli.moments import moment_of
from unibus.cli.options import with_options
from unibus.cli.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.progress import bar
from unibus.cli.report import ExitCode
from unibus.cli.signals import undisturbed
from unibus.counting import counted
from unibus.errors import EntityNotFound, UsageError

if TYPE_CHECKING:
    from unibus.core.message import Message
    from unibus.stores.reader import StoreReader
    from unibus.stores.store import Store

BATCH: Final = 500


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
    url = store_url(options.url)
    done = _show(options, url, begin) if options.to is None else _send_again(options, options.to, url, begin)
    if not done:
        aside(f"history has nothing of {options.channel} from there on")
    return ExitCode.OK if done else ExitCode.NOTHING_MATCHED


def _show(options: ReplayOptions, url: str, begin: tuple[int, int]) -> int:
    from unibus.cli.message_view import MessageView

    view, shown = MessageView(options.raw), 0
    with looking(url) as reader:
        for message in islice(_messages(reader, options.channel, begin), options.count or None):
            view.show(options.channel, message)
            shown += 1
    view.flush()
    return shown


def _messages(reader: "StoreReader", channel: str, begin: tuple[int, int]) -> "Iterator[Message]":
    from unibus.core.codec import decode

    try:
        for sequence, data in reader.replay(channel, *begin):
            message = decode(data)
            message.sequence = sequence
            yield message
    except EntityNotFound:
        raise not_found(channel, [each.name for each in reader.entities()]) from None


# Sending again


def _send_again(options: ReplayOptions, target: str, url: str, begin: tuple[int, int]) -> int:
    from unibus.stores.reader import OpenStoreReader

    with owning(url) as store:
        reader = OpenStoreReader(store)
        names = [each.name for each in reader.entities()]
        if target not in names:
            raise not_found(target, names)
        try:
            # In the order of time, so those that come meanwhile stand after these.
            total = len(reader.stored(options.channel, *begin))
        except EntityNotFound:
            raise not_found(options.channel, names) from None
        total = min(total, options.count or total)
        if total:
            _ask(options, f"Send {counted(total, 'message')} of {options.channel} to {target}?")
            messages = islice(_messages(reader, options.channel, begin), total)
            _Resending(store, target, total).run(messages)
        return total


def _ask(options: ReplayOptions, question: str) -> None:
    if options.yes:
        return
    if not (is_terminal() and sys.stdin.isatty()):
        raise UsageError("nobody is there to be asked", "--yes sends without asking")
    typer.confirm(question, abort=True)


class _Resending:
    """What was sent is told in the end, also when an error or Ctrl-C is the end."""

    def __init__(self, store: "Store", target: str, total: int) -> None:
        self._store = store
        self._target = target
        self._total = total
        self._sent = 0
        self._duplicates = 0

    def run(self, messages: "Iterator[Message]") -> None:
        try:
            with bar() as progress:
                while batch := list(islice(messages, BATCH)):
                    with undisturbed():
                        self._send(batch)
                    progress(self._sent, self._total)
        finally:
            self._tell()

    def _send(self, batch: "list[Message]") -> None:
        from unibus.core.life.commands import SendResult
        from unibus.core.life.envelope import send_of

        again = [message.fresh() for message in batch]
        for message in again:
            message.channel = self._target
        results = self._store.apply([send_of(message, self._target) for message in again]).wait()
        self._sent += len(batch)
        self._duplicates += sum(isinstance(each, SendResult) and each.duplicate for each in results)

    def _tell(self) -> None:
        if is_terminal():
            known = f", {self._duplicates:,} of them known there already" if self._duplicates else ""
            typer.echo(f"{counted(self._sent, 'message')} sent to {printable(self._target)}{known}")
        else:
            write_json({"entity": self._target, "sent": self._sent, "duplicates": self._duplicates})
            flush()
