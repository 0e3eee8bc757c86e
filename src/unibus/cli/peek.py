"""`unibus peek`: look at messages without taking them. Nothing changes: no lock, no count, no settlement."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.bus_option import DEFAULT_STORE, DeadLetters, Queue, Url, entity_name, not_found, store_url
from unibus.cli.output import aside
from unibus.cli.report import ExitCode
from unibus.errors import EntityNotFound

if TYPE_CHECKING:
    from unibus.bus.sync_bus import SyncMessageBus
    from unibus.core.message import Message

PAGE: Final = 500


def peek(
    queue: Queue,
    count: Annotated[int, typer.Option(min=0, help="How many; 0 for all there are.")] = 10,
    from_sequence: Annotated[int, typer.Option("--from", min=0, metavar="SEQ", help="Begin at this sequence.")] = 0,
    dead_letters: DeadLetters = False,
    raw: Annotated[bool, typer.Option("--raw", help="The bodies alone.")] = False,
    url: Url = DEFAULT_STORE,
) -> ExitCode:
    """Look at messages without taking them.

    In the order of their sequence, and also those that are locked, scheduled or deferred.

    Exit code 3 if there is none.
    """
    from unibus.bus.sync_bus import SyncMessageBus
    from unibus.cli.message_view import MessageView

    entity = entity_name(queue, dead_letters)
    view, shown = MessageView(raw), 0
    with SyncMessageBus(store_url(url), strict=True) as bus:
        try:
            for message in _messages(bus, entity, from_sequence, count):
                view.show(entity, message)
                shown += 1
        except EntityNotFound:
            raise not_found(queue, [each.name for each in bus.entities()]) from None
    view.flush()
    if not shown:
        aside(f"no messages in {entity}")
    return ExitCode.OK if shown else ExitCode.NOTHING_MATCHED


def _messages(bus: "SyncMessageBus", entity: str, from_sequence: int, count: int) -> "Iterator[Message]":
    """In pages, so that a long queue needs no memory for all of it."""
    left = count
    while page := bus.peek(entity, min(left, PAGE) if count else PAGE, from_sequence):
        yield from page
        from_sequence = int(page[-1].sequence) + 1
        left -= len(page)
        if count and left <= 0:
            return
