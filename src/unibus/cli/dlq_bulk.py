"""Acting on many dead letters from a shell: first what it is about, then a question, then the work.

Ctrl-C is heard between two batches: what is told has happened, and the same command goes on with the rest.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import typer

from unibus.cli.bus_option import store_url
from unibus.cli.dlq_options import BulkOptions
from unibus.cli.dlq_view import group_record, show_groups
from unibus.cli.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.report import ExitCode
from unibus.cli.signals import undisturbed
from unibus.counting import counted
from unibus.errors import UsageError

if TYPE_CHECKING:
    from unibus.bus.dead_letters.faces import SyncDeadLetterManager
    from unibus.bus.dead_letters.filters import DeadLetterFilter
    from unibus.bus.dead_letters.results import DeadGroup, ProcessingResult
    from unibus.bus.dead_letters.sweep import Progress

ERRORS_SHOWN: Final = 10
COUNTS: Final = {
    "retried": "retried",
    "redirected": "redirected",
    "discarded": "discarded",
    "manual_review": "left for review",
    "skipped": "skipped",
}

Work: TypeAlias = "Callable[[SyncDeadLetterManager, DeadLetterFilter, Progress], ProcessingResult]"


def carry_out(options: BulkOptions, question: str, work: Work) -> ExitCode:
    """`question` is what is asked, without the number: "retry", "redirect to x"."""
    from unibus.bus.sync_bus import SyncMessageBus

    chosen = options.chosen()
    with SyncMessageBus(store_url(options.url), strict=True) as bus:
        letters = bus.dead_letter_queue(options.max_recoveries)
        letters.guard = undisturbed
        groups = letters.groups(chosen)
        if not groups:
            aside("no dead letters that match")
            return ExitCode.NOTHING_MATCHED
        if is_terminal():
            show_groups(groups)
        if not options.dry_run and not options.yes:
            _ask(f"{question} {counted(sum(group.count for group in groups), 'dead letter')}?")
        result = _run(letters, chosen, work)
    _tell(result, groups)
    return ExitCode.FAILED if result.errors else ExitCode.OK


def _ask(question: str) -> None:
    if not (is_terminal() and sys.stdin.isatty()):
        raise UsageError(
            "nobody is there to be asked", "--yes does it without asking, --dry-run tells what it would do"
        )
    typer.confirm(question[0].upper() + question[1:], abort=True)


def _run(letters: "SyncDeadLetterManager", chosen: "DeadLetterFilter", work: Work) -> "ProcessingResult":
    seen = [0, 0]
    try:
        with _bar() as bar:

            def progress(done: int, total: int) -> None:
                seen[:] = done, total
                bar(done, total)

            return work(letters, chosen, progress)
    except KeyboardInterrupt:
        _tell_stopped(*seen)
        raise


@contextmanager
def _bar() -> "Iterator[Progress]":
    """On a terminal a bar; else nothing."""
    if not is_terminal():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    with Progress(
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as shown:
        task = shown.add_task("", total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _tell_stopped(done: int, total: int) -> None:
    if is_terminal():
        typer.echo(f"stopped after {done:,} of {counted(total, 'dead letter')}; the same command goes on with the rest")
    else:
        write_json({"stopped": True, "done": done, "total": total})
        flush()


def _tell(result: "ProcessingResult", groups: "list[DeadGroup]") -> None:
    if not is_terminal():
        record: dict[str, object] = {name: getattr(result, name) for name in COUNTS}
        record |= {"errors": result.errors, "dry_run": result.dry_run}
        if result.dry_run:
            record["groups"] = [group_record(group) for group in groups]
        write_json(record)
        flush()
        return
    told = [f"{getattr(result, name):,} {word}" for name, word in COUNTS.items() if getattr(result, name)]
    told += [f"{len(result.errors):,} failed"] if result.errors else []
    typer.echo(("nothing was done; it would be: " if result.dry_run else "") + (", ".join(told) or "none"))
    for message_id, text in result.errors[:ERRORS_SHOWN]:
        typer.secho(f"  {printable(message_id)}: {printable(text)}", fg="red", err=True)
    if len(result.errors) > ERRORS_SHOWN:
        typer.secho(f"  and {len(result.errors) - ERRORS_SHOWN:,} more", fg="red", err=True)
