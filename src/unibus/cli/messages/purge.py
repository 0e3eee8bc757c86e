"""`unibus purge`: remove all messages of a queue or subscription, or of its dead-letter queue.

Ctrl-C stops it between two batches: the reported count is exact, and the same command continues with the rest.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, DeadLetters, Url, entity_name, not_found
from unibus.cli.terminal.confirmation import confirm
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.terminal.progress import run_in_batches
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.shared_options import DryRun, Yes
from unibus.counting import counted
from unibus.errors import EntityNotFound

if TYPE_CHECKING:
    from unibus.bus.management.jobs.job_records import JobCounts


def purge(
    entity: Annotated[
        str, typer.Argument(metavar="ENTITY", help="A queue, or topic/Subscriptions/name.", show_default=False)
    ],
    dead_letters: DeadLetters = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_STORE,
) -> ExitCode:
    """Remove all messages of a queue or subscription. This cannot be undone.

    Scheduled and deferred messages as well. Messages that a receiver has locked stay, and so do messages that are sent
    while it runs. Ctrl-C stops it between two batches and reports how many it removed.

    Exit code 3 if there are no messages.
    """
    name = entity_name(entity, dead_letters)
    with managed(url) as bus:
        try:
            found = bus.purge(name, dry_run)
        except EntityNotFound:
            raise not_found(entity, [each.name for each in bus.entities()]) from None
        if not found.total:
            aside(f"no messages in {name}")
            return ExitCode.NOTHING_MATCHED
        if not dry_run and not yes:
            confirm(f"remove {counted(found.total, 'message')} of {printable(name)}?", has_dry_run=True)
        counts = run_in_batches(found.run, "message")
    _report(counts, dry_run)
    return ExitCode.OK


def _report(counts: "JobCounts", dry_run: bool) -> None:
    if not is_terminal():
        write_json({"purged": counts.purged, "skipped": counts.skipped, "dry_run": dry_run})
        flush()
        return
    skipped = f", {counts.skipped:,} locked and skipped" if counts.skipped else ""
    typer.echo(f"{'would be ' if dry_run else ''}purged: {counts.purged:,}{skipped}")
