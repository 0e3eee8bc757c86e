"""The options that say which dead letters are meant, and how to go about many of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.terminal.durations import seconds_of
from unibus.errors import UsageError
from unibus.limits import DEAD_LETTER_RECOVERIES_MAX

if TYPE_CHECKING:
    from unibus.bus.dead_letters.filters import DeadLetterFilter
    from unibus.bus.management.jobs.job_records import JobKind, JobRequest


@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Where they lie; * and ? stand for anything.")] = (
        None
    )
    source: Annotated[str | None, typer.Option(metavar="NAME", help="Where they died; * and ? as above.")] = None
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Contained in the reason.")] = None
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="Contained in the error's type or text.")] = None
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="Contained in the description.")] = None
    older_than: Annotated[str | None, typer.Option(metavar="TIME", help="Died before that: 30m, 2h, 7d.")] = None
    newer_than: Annotated[str | None, typer.Option(metavar="TIME", help="Died since then.")] = None
    attempts_from: Annotated[int | None, typer.Option(min=0, metavar="N", help="Delivered so often or more.")] = None
    attempts_below: Annotated[int | None, typer.Option(min=0, metavar="N", help="Delivered less often.")] = None
    recoveries_from: Annotated[int | None, typer.Option(min=0, metavar="N", help="Brought back so often or more.")] = (
        None
    )
    recoveries_below: Annotated[int | None, typer.Option(min=0, metavar="N", help="Brought back less often.")] = None
    id: Annotated[list[str] | None, typer.Option(metavar="ID", help="One message; may be given several times.")] = None
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
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; needed where no terminal is.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would happen.")] = False
    rate: Annotated[float | None, typer.Option(metavar="N", help="At most so many per second.")] = None
    batch_size: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="In one step of the store.")] = 500
    max_recoveries: Annotated[int, typer.Option(min=0, metavar="N", help="How often one may be brought back.")] = (
        DEAD_LETTER_RECOVERIES_MAX
    )
    detach: Annotated[
        bool, typer.Option("--detach", help="Through a server: leave the work to it, and print its number.")
    ] = False

    def request(self, kind: "JobKind", **own: Any) -> "JobRequest":
        """What is asked for, in the form that a server takes it, too. UsageError for what it cannot be."""
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
    """For commands that act on whatever is chosen: all there is has to be asked for."""

    all: Annotated[bool, typer.Option("--all", help="All there are.")] = False

    def chosen(self) -> "DeadLetterFilter":
        chosen = super().chosen()
        if chosen.is_everything() and not self.all:
            raise UsageError("which dead letters?", "choose some, for instance with --queue or --id, or take --all")
        return chosen
