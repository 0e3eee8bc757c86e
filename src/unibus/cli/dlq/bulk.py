"""Bulk operations on dead-lettered messages: show what matches, ask for confirmation, then run in batches.

Ctrl-C stops it between two batches: the reported counts are exact, and the same command continues with the rest.
"""

from typing import TYPE_CHECKING, Final

import typer

from unibus.cli.connecting import managed
from unibus.cli.dlq.options import BulkOptions
from unibus.cli.dlq.view import group_record, show_groups
from unibus.cli.terminal.confirmation import confirm
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.terminal.progress import run_in_batches
from unibus.cli.terminal.report import ExitCode
from unibus.counting import counted

if TYPE_CHECKING:
    from unibus.bus.dead_letters.results import DeadGroup, ProcessingResult
    from unibus.bus.management.jobs.job_records import JobRequest

NOUN: Final = "dead-lettered message"
ERRORS_SHOWN: Final = 10
COUNTS: Final = {
    "retried": "retried",
    "redirected": "redirected",
    "discarded": "discarded",
    "manual_review": "left for manual review",
    "skipped": "skipped",
}


def carry_out(options: BulkOptions, question: str, request: "JobRequest") -> ExitCode:
    """`question` is the confirmation without the number: "retry", "redirect to x"."""
    chosen = options.chosen()
    with managed(options.url) as bus:
        dead_letters = bus.dead_letters()
        groups = dead_letters.groups(chosen)
        if not groups:
            aside("no dead-lettered messages match")
            return ExitCode.NOTHING_MATCHED
        if is_terminal():
            show_groups(groups)
        if not options.dry_run and not options.yes:
            number = counted(sum(group.count for group in groups), NOUN)
            confirm(f"{question} {number}?", has_dry_run=True)
        result = run_in_batches(lambda progress: dead_letters.run(request, progress, options.detach), NOUN)
    if isinstance(result, int):
        _report_detached(result)
        return ExitCode.OK
    _report(result, groups)
    return ExitCode.FAILED if result.errors else ExitCode.OK


def _report_detached(job: int) -> None:
    if is_terminal():
        typer.echo(f"job {job} runs in the server; `unibus dlq jobs show {job}` shows its progress")
    else:
        write_json({"job": job})
        flush()


def _report(result: "ProcessingResult", groups: "list[DeadGroup]") -> None:
    if not is_terminal():
        record: dict[str, object] = {name: getattr(result, name) for name in COUNTS}
        record |= {"errors": result.errors, "dry_run": result.dry_run}
        if result.dry_run:
            record["groups"] = [group_record(group) for group in groups]
        write_json(record)
        flush()
        return
    counts = [f"{getattr(result, name):,} {word}" for name, word in COUNTS.items() if getattr(result, name)]
    counts += [f"{len(result.errors):,} failed"] if result.errors else []
    typer.echo(
        ("dry run, nothing was changed; it would be: " if result.dry_run else "") + (", ".join(counts) or "none")
    )
    for message_id, text in result.errors[:ERRORS_SHOWN]:
        typer.secho(f"  {printable(message_id)}: {printable(text)}", fg="red", err=True)
    if len(result.errors) > ERRORS_SHOWN:
        typer.secho(f"  and {len(result.errors) - ERRORS_SHOWN:,} more", fg="red", err=True)
