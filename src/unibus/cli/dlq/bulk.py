"""Acting on many dead letters from a shell: first what it is about, then a question, then the work.

Ctrl-C is heard between two batches: what is told has happened, and the same command goes on with the rest.
"""

import sys
from typing import TYPE_CHECKING, Final

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.management import DeadLetters
from unibus.cli.dlq.options import BulkOptions
from unibus.cli.dlq.view import group_record, show_groups
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.terminal.progress import bar
from unibus.cli.terminal.report import ExitCode
from unibus.counting import counted
from unibus.errors import UsageError

if TYPE_CHECKING:
    from unibus.bus.dead_letters.results import DeadGroup, ProcessingResult
    from unibus.bus.management.jobs.job_records import JobRequest

ERRORS_SHOWN: Final = 10
COUNTS: Final = {
    "retried": "retried",
    "redirected": "redirected",
    "discarded": "discarded",
    "manual_review": "left for review",
    "skipped": "skipped",
}


def carry_out(options: BulkOptions, question: str, request: "JobRequest") -> ExitCode:
    """`question` is what is asked, without the number: "retry", "redirect to x"."""
    chosen = options.chosen()
    with managed(options.url) as bus:
        letters = bus.dead_letters()
        groups = letters.groups(chosen)
        if not groups:
            aside("no dead letters that match")
            return ExitCode.NOTHING_MATCHED
        if is_terminal():
            show_groups(groups)
        if not options.dry_run and not options.yes:
            _ask(f"{question} {counted(sum(group.count for group in groups), 'dead letter')}?")
        result = _run(letters, request, options.detach)
    if isinstance(result, int):
        _tell_detached(result)
        return ExitCode.OK
    _tell(result, groups)
    return ExitCode.FAILED if result.errors else ExitCode.OK


def _ask(question: str) -> None:
    if not (is_terminal() and sys.stdin.isatty()):
        raise UsageError(
            "there is no terminal to ask for a confirmation",
            "--yes does it without asking, --dry-run reports what it would do",
        )
    typer.confirm(question[0].upper() + question[1:], abort=True)


def _run(letters: DeadLetters, request: "JobRequest", detach: bool) -> "ProcessingResult | int":
    seen = [0, 0]
    try:
        with bar() as shown:

            def progress(done: int, total: int) -> None:
                seen[:] = done, total
                shown(done, total)

            return letters.run(request, progress, detach)
    except KeyboardInterrupt:
        _tell_stopped(*seen)
        raise


def _tell_detached(job: int) -> None:
    if is_terminal():
        typer.echo(f"job {job} runs in the server; `unibus dlq jobs show {job}` tells how far it is")
    else:
        write_json({"job": job})
        flush()


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
