"""How dead-lettered messages are shown: as tables and blocks for people, as records for programs."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unibus.cli.entities.entities import age
from unibus.cli.terminal.output import flush, is_terminal, printable, write_json

if TYPE_CHECKING:
    from rich.table import Table
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
        "attempts": dead.retry_count,
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
        _print(_messages_table(messages))


def show_groups(groups: "Sequence[DeadGroup]") -> None:
    if not is_terminal():
        for group in groups:
            write_json(group_record(group))
        flush()
    elif groups:
        _print(_groups_table(groups))


def _print(table: "Table") -> None:
    from rich.console import Console

    Console(highlight=False).print(table)


def _table(*headings: tuple[str, bool]) -> "Table":
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), show_edge=False)
    for heading, is_number in headings:
        drawn.add_column(heading, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return drawn


def _messages_table(messages: "Sequence[DeadMessage]") -> "Table":
    from rich.text import Text

    drawn = _table(("queue", False), ("#", True), ("age", True), ("tries", True), ("retried", True), ("reason", False))
    drawn.add_column("id", no_wrap=True)  # Never folded, because people copy it.
    now_ns = time.time_ns()
    for each in messages:
        counts = (str(each.sequence), age(now_ns - each.failure_ns), str(each.retry_count), str(each.recovery_attempts))
        why = Text(printable(each.failure_reason))
        if each.last_error:
            why.append(f"\n{printable(_head(each.last_error))}", style="dim")
        drawn.add_row(Text(printable(_queue(each.entity))), *counts, why, Text(printable(each.id)))
    return drawn


def _groups_table(groups: "Sequence[DeadGroup]") -> "Table":
    from rich.text import Text

    drawn = _table(("queue", False), ("reason", False), ("messages", True), ("oldest", True))
    now_ns = time.time_ns()
    for group in groups:
        names = (Text(printable(_queue(group.entity))), Text(printable(group.reason)))
        drawn.add_row(*names, f"{group.count:,}", age(now_ns - group.oldest_ns))
    return drawn


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
    shown = message_view.fields({**message, "delivery_count": dead.retry_count})
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
