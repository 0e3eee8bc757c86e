"""How dead-lettered messages are shown: as tables and blocks for people, as records for programs."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unibus.cli.entities.entities import age
from unibus.cli.terminal.output import flush, is_terminal, printable, write_json
from unibus.cli.terminal.table import CellKind, TableColumn, print_table

if TYPE_CHECKING:
    from rich.text import Text

    from unibus.bus.dead_letters.dead_message import DeadMessage
    from unibus.bus.dead_letters.results import DeadGroup

Record = dict[str, object]


def record_of(dead: "DeadMessage") -> Record:
    return {
        "id": dead.id,
        "entity": dead.entity,
        "sequence": dead.sequence,
        "source": dead.source,
        "reason": dead.failure_reason,
        "description": dead.description,
        "error_type": dead.error_type,
        "last_error": dead.last_error,
        "died_at": dead.failure_timestamp.isoformat(),
        "attempts": dead.attempts,
        "recoveries": dead.recovery_attempts,
        "consumer": dead.consumer,
        "state": dead.state,
        "session_id": dead.session_id,
        "size": dead.size,
    }


def group_record(group: "DeadGroup") -> Record:
    from unibus.cli.terminal.message_view import instant

    return {"entity": group.entity, "reason": group.reason, "count": group.count, "oldest_at": instant(group.oldest_ns)}


def show_list(messages: "Sequence[DeadMessage]") -> None:
    if not is_terminal():
        for each in messages:
            write_json(record_of(each))
        flush()
    elif messages:
        _show_messages(messages)


def show_groups(groups: "Sequence[DeadGroup]") -> None:
    if not is_terminal():
        for group in groups:
            write_json(group_record(group))
        flush()
    elif groups:
        _show_counts(groups)


def _show_messages(messages: "Sequence[DeadMessage]") -> None:
    figures = [TableColumn(heading, CellKind.FIGURE) for heading in ("#", "age", "attempts", "recoveries")]
    columns = [TableColumn("queue", CellKind.NAME), *figures, TableColumn("reason"), TableColumn("id", CellKind.EXACT)]
    now_ns = time.time_ns()
    rows = []
    for each in messages:
        counts = (str(each.sequence), age(now_ns - each.failure_ns), str(each.attempts), str(each.recovery_attempts))
        why = f"{each.failure_reason}\n{_head(each.last_error)}" if each.last_error else each.failure_reason
        rows.append([_queue(each.entity), *counts, why, each.id])
    print_table(columns, rows)


def _show_counts(groups: "Sequence[DeadGroup]") -> None:
    figures = [TableColumn(heading, CellKind.FIGURE) for heading in ("messages", "oldest")]
    now_ns = time.time_ns()
    print_table(
        [TableColumn("queue", CellKind.NAME), TableColumn("reason"), *figures],
        [[_queue(each.entity), each.reason, f"{each.count:,}", age(now_ns - each.oldest_ns)] for each in groups],
    )


def _queue(entity: str) -> str:
    from unibus.bus.dead_letters.record import owner_of

    return owner_of(entity)


def _head(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= 60 else first[:59] + "…"


def show_message(dead: "DeadMessage") -> None:
    """Everything about it: the fields of the message, why it was dead-lettered, and the body last."""
    from unibus.cli.terminal import message_view

    message = message_view.record_of(dead.entity, dead.original, None)
    record = {**record_of(dead), "traceback": dead.traceback}
    if not is_terminal():
        write_json({**record, "message": message})
        return
    from rich.console import Console

    console = Console(highlight=False)
    shown = message_view.fields({**message, "delivery_count": dead.attempts})
    shown.append_text(_failure(record)).append_text(message_view.body(message))
    console.print(shown, soft_wrap=True)


def _failure(record: Record) -> "Text":
    from rich.text import Text

    from unibus.cli.terminal.message_view import LABEL_WIDTH, local_time

    shown = Text()
    for name in ("source", "reason", "description", "last_error", "died_at", "attempts", "recoveries", "consumer"):
        value = local_time(record[name]) if name == "died_at" else record[name]
        if value not in ("", None):
            label = "dead since" if name == "died_at" else name.replace("_", " ")
            shown.append(f"  {label:<{LABEL_WIDTH}} ", style="red")
            shown.append(printable(str(value)).replace("\n", "\n" + " " * (LABEL_WIDTH + 3)) + "\n")
    if record["traceback"]:
        shown.append(printable(str(record["traceback"])).rstrip("\n") + "\n", style="dim")
    return shown
