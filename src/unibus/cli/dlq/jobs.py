"""`unibus dlq jobs`: the bulk operations that a server runs: list, show, pause, resume, cancel."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
import typer

from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.server.server import connected
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json

if TYPE_CHECKING:
    from unibus.bus.management.jobs.job_records import JobRecord

jobs = typer.Typer(name="jobs", help="Jobs of a server: bulk operations on dead-lettered messages, and purges.")

Number: TypeAlias = Annotated[
    int, typer.Argument(metavar="JOB", min=1, help="The number of a job.", show_default=False)
]


@jobs.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@jobs.command()
def ls(url: Url = DEFAULT_STORE) -> None:
    """List the latest jobs of the server, with those before its last start."""
    from unibus.bus.management.jobs.job_records import JobRecord

    class Jobs(msgspec.Struct):
        jobs: list[JobRecord]

    with connected(url) as client:
        found = client.get("jobs", Jobs).jobs
    _show(found)
    if not found:
        aside("no jobs yet")


@jobs.command()
def show(job: Number, url: Url = DEFAULT_STORE) -> None:
    """Show one job: its progress and its results."""
    from unibus.bus.management.jobs.job_records import JobRecord

    with connected(url) as client:
        _show([client.get("job", JobRecord, {"id": job})])


@jobs.command()
def pause(job: Number, url: Url = DEFAULT_STORE) -> None:
    """Stop a job between two batches. It can be resumed."""
    _act("pause", job, url)


@jobs.command()
def resume(job: Number, url: Url = DEFAULT_STORE) -> None:
    """Continue a job that was paused, interrupted or failed."""
    _act("resume", job, url)


@jobs.command()
def cancel(job: Number, url: Url = DEFAULT_STORE) -> None:
    """End a job between two batches. What it has done is not undone."""
    _act("cancel", job, url)


def _act(verb: str, job: int, url: str) -> None:
    from unibus.bus.management.jobs.job_records import JobRecord

    with connected(url) as client:
        _show([client.post(f"jobs/{verb}", JobRecord, None, {"id": job}, is_safe=True)])


def _show(found: "Sequence[JobRecord]") -> None:
    if not is_terminal():
        for job in found:
            write_json(job)
        flush()
        return
    for job in found:
        rate = "" if not job.rate else f"  {job.rate:,.0f} per second"
        typer.echo(
            f"{job.id:>5}  {job.kind:<9}{job.state:<12}{job.done:,} of {job.total:,}{rate}  {_age(job)}".rstrip()
        )
        for text in (job.reason, job.hint):
            if text:
                typer.echo(f"       {printable(text)}")
        for error in job.errors[:10] if len(found) == 1 else ():
            typer.secho(f"       {printable(error.id)}: {printable(error.error)}", fg="red")


def _age(job: "JobRecord") -> str:
    from unibus.cli.entities.entities import age

    return f"{age(time.time_ns() - job.created_ns)} ago by {printable(job.by)}"
