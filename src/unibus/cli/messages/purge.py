"""`unibus purge`: remove all messages of a queue or subscription, or of its dead-letter queue.

Ctrl-C stops it between two batches: the reported count is exact, and the same command continues with the rest.
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, DeadLetters, Queue, Url, entity_name, not_found
from unibus.cli.connection.management import Purging
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.terminal.report import ExitCode
from unibus.errors import EntityNotFound, UsageError

if TYPE_CHECKING:
    from unibus.bus.management.jobs.job_records import JobCounts


def purge(
    queue: Queue,
    dead_letters: DeadLetters = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask for confirmation. Required without a terminal.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would happen.")] = False,
    url: Url = DEFAULT_STORE,
) -> ExitCode:
    """Remove all messages of a queue or subscription. This cannot be undone.

    Locked messages stay, and so do messages that are sent while it runs.

    Exit code 3 if there are no messages.
    """
    entity = entity_name(queue, dead_letters)
    with managed(url) as bus:
        try:
            found = bus.purge(entity, dry_run)
        except EntityNotFound:
            raise not_found(queue, [each.name for each in bus.entities()]) from None
        if not found.total:
            aside(f"no messages in {entity}")
            return ExitCode.NOTHING_MATCHED
        if not dry_run and not yes:
            _ask(entity, found.total)
        counts = _run(found)
    _report(counts, dry_run)
    return ExitCode.OK


def _ask(entity: str, total: int) -> None:
    if not (is_terminal() and sys.stdin.isatty()):
        raise UsageError(
            "a purge needs a confirmation, and there is no terminal to ask at",
            "add --yes to purge, or --dry-run to see what it would remove",
        )
    typer.confirm(f"Remove {total:,} messages of {printable(entity)}?", abort=True)


def _run(found: Purging) -> "JobCounts":
    seen = [0, found.total]

    def progress(done: int, total: int) -> None:
        seen[:] = done, total

    try:
        return found.run(progress)
    except KeyboardInterrupt:
        done, total = seen
        if is_terminal():
            typer.echo(f"stopped after {done:,} of {total:,} messages; run the same command again to continue")
        else:
            write_json({"stopped": True, "done": done, "total": total})
            flush()
        raise


def _report(counts: "JobCounts", dry_run: bool) -> None:
    if not is_terminal():
        write_json({"purged": counts.purged, "skipped": counts.skipped, "dry_run": dry_run})
        flush()
        return
    skipped = f", {counts.skipped:,} locked and skipped" if counts.skipped else ""
    typer.echo(f"{'would be ' if dry_run else ''}purged: {counts.purged:,}{skipped}")
