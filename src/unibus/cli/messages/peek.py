"""`unibus peek`: look at messages without taking them. Nothing changes: no lock, no count, no settlement."""

from typing import Annotated

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, DeadLetters, Queue, Url, entity_name, not_found
from unibus.cli.terminal.output import aside
from unibus.cli.terminal.report import ExitCode
from unibus.errors import EntityNotFound


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
    from unibus.cli.terminal.message_view import MessageView

    entity = entity_name(queue, dead_letters)
    view, shown = MessageView(raw), 0
    with managed(url) as bus:
        try:
            for message in bus.peek(entity, from_sequence, count):
                view.show(entity, message)
                shown += 1
        except EntityNotFound:
            raise not_found(queue, [each.name for each in bus.entities()]) from None
    view.flush()
    if not shown:
        aside(f"no messages in {entity}")
    return ExitCode.OK if shown else ExitCode.NOTHING_MATCHED
