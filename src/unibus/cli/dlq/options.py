"""The options that select dead-lettered messages, and those that control a bulk operation."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.terminal.durations import METAVAR, seconds_of
from unibus.cli.terminal.shared_options import DryRun, Yes
from unibus.errors import UsageError
from unibus.limits import DEAD_LETTER_RECOVERIES_MAX

if TYPE_CHECKING:
    from unibus.bus.dead_letters.filters import DeadLetterFilter
    from unibus.bus.management.jobs.job_records import JobKind, JobRequest


@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="The queue or subscription; * and ? are wildcards.")
    ] = None
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="The entity they came from; * and ? are wildcards.")
    ] = None
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason contains this text.")] = None
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="The error type or text contains this.")] = None
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="The description contains this text.")] = None
    older_than: Annotated[str | None, typer.Option(metavar=METAVAR, help="Dead-lettered before: 30m, 2h, 7d.")] = None
    newer_than: Annotated[str | None, typer.Option(metavar=METAVAR, help="Dead-lettered since.")] = None
    attempts_from: Annotated[int | None, typer.Option(min=0, metavar="N", help="Delivered at least N times.")] = None
    attempts_below: Annotated[int | None, typer.Option(min=0, metavar="N", help="Delivered fewer than N times.")] = None
    recoveries_from: Annotated[int | None, typer.Option(min=0, metavar="N", help="Retried at least N times.")] = None
    recoveries_below: Annotated[int | None, typer.Option(min=0, metavar="N", help="Retried fewer than N times.")] = None
    id: Annotated[list[str] | None, typer.Option(metavar="ID", help="One message. May be repeated.")] = None
    url: Url = DEFAULT_STORE

    def chosen(self) -> "DeadLetterFilter":
        from unibus.bus.dead_letters.filters import DeadLetterFilter

        return DeadLetterFilter(
            queue=self.queue,
            source=self.source,
            reason=self.reason,
            error=self.error,
            description=self.description,
            older_than=None if self.older_than is None else seconds_of("--older-than", self.older_than),
            newer_than=None if self.newer_than is None else seconds_of("--newer-than", self.newer_than),
            attempts_from=self.attempts_from,
            attempts_below=self.attempts_below,
            recoveries_from=self.recoveries_from,
            recoveries_below=self.recoveries_below,
            ids=tuple(self.id) if self.id else None,
        )


@dataclass(frozen=True, kw_only=True)
class BulkOptions(FilterOptions):
    yes: Yes = False
    dry_run: DryRun = False
    rate: Annotated[float | None, typer.Option(metavar="N", help="Maximum number of messages per second.")] = None
    batch_size: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="Messages in one commit.")] = 500
    max_recoveries: Annotated[
        int, typer.Option(min=0, metavar="N", help="Skip messages that were retried N times.")
    ] = DEAD_LETTER_RECOVERIES_MAX
    detach: Annotated[bool, typer.Option("--detach", help="Let the server run the job, and print its number.")] = False

    def request(self, kind: "JobKind", **own: Any) -> "JobRequest":
        """The request, in the form that a server also takes. Raises UsageError for invalid options."""
        from unibus.bus.management.jobs.dead_letters import FilterRecord
        from unibus.bus.management.jobs.job_records import JobRequest

        made = JobRequest(
            kind,
            FilterRecord.of(self.chosen()),
            dry_run=self.dry_run,
            rate=self.rate,
            batch_size=self.batch_size,
            max_recoveries=self.max_recoveries,
            **own,
        )
        made.check()
        return made


@dataclass(frozen=True, kw_only=True)
class ChosenOptions(BulkOptions):
    """For commands that change messages: without a filter they require --all."""

    all: Annotated[bool, typer.Option("--all", help="All dead-lettered messages.")] = False

    def chosen(self) -> "DeadLetterFilter":
        chosen = super().chosen()
        if chosen.is_everything() and not self.all:
            raise UsageError(
                "no dead-lettered messages are selected",
                "select some, for example with --queue or --id, or all with --all",
            )
        return chosen
