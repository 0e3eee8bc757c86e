"""`unibus peek`: show messages without receiving them: no lock, no delivery count, no settlement."""

from typing import Annotated

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, DeadLetters, Queue, Url, entity_name, not_found
from unibus.cli.terminal.output import aside
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.shared_options import Limit, Raw, limit_of
from unibus.errors import EntityNotFound


def peek(
    queue: Queue,
    limit: Limit = "10",
    from_sequence: Annotated[
        int, typer.Option("--from", min=0, metavar="SEQ", help="Start at this sequence number.")
    ] = 0,
    dead_letters: DeadLetters = False,
    raw: Raw = False,
    url: Url = DEFAULT_STORE,
) -> ExitCode:
    """Show messages without receiving them.

    In the order of their sequence numbers, with the messages that are locked, scheduled or deferred.

    Exit code 3 if there are no messages.
    """
    from unibus.cli.terminal.message_view import MessageView

    entity = entity_name(queue, dead_letters)
    view, shown, count = MessageView(raw), 0, limit_of(limit) or 0
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
