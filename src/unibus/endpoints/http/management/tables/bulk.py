"""Dead-lettered messages, and work on many messages as jobs. All of it needs Manage on the namespace."""

from typing import Final

from unibus.core.access.rights import Right
from unibus.endpoints.http.management import bulk_schemas, dead_letters, jobs
from unibus.endpoints.http.operation import Handler, Operation


def _read(
    name: str,
    path: str,
    handler: Handler,
    summary: str,
    parameters: tuple[dict[str, object], ...],
    answer: dict[str, object],
) -> Operation:
    return Operation(
        name,
        "GET",
        f"/unibus/v1/{path}",
        Right.MANAGE,
        handler,
        summary,
        (f"/unibus/v1/{path}",),
        tag="management: dead letters and jobs",
        parameters=parameters,
        response_schema=answer,
    )


def _act(name: str, path: str, handler: Handler, summary: str) -> Operation:
    """On one job, which is named in the query. 409: it has ended."""
    return Operation(
        name,
        "POST",
        f"/unibus/v1/{path}",
        Right.MANAGE,
        handler,
        summary,
        (f"/unibus/v1/{path}",),
        (200, 409),
        tag="management: dead letters and jobs",
        parameters=bulk_schemas.JOB_PARAMETERS,
        response_schema=bulk_schemas.RECORD,
    )


BULK: Final[tuple[Operation, ...]] = (
    _read(
        "list_dead_letters",
        "dead-letters",
        dead_letters.list_dead_letters,
        "Dead-lettered messages that a filter takes, the first to die first",
        bulk_schemas.PAGE_PARAMETERS,
        bulk_schemas.PAGE,
    ),
    _read(
        "list_dead_letter_groups",
        "dead-letters/groups",
        dead_letters.list_groups,
        "How many there are, by queue and reason",
        bulk_schemas.FILTER_PARAMETERS,
        bulk_schemas.GROUPS,
    ),
    Operation(
        "create_job",
        "POST",
        "/unibus/v1/jobs",
        Right.MANAGE,
        jobs.create_job,
        "Retry, redirect or discard dead-lettered messages, let rules decide, or purge an entity",
        ("/unibus/v1/jobs",),
        (201,),
        has_body=True,
        tag="management: dead letters and jobs",
        request_schema=bulk_schemas.REQUEST,
        response_schema=bulk_schemas.RECORD,
    ),
    _read("list_jobs", "jobs", jobs.list_jobs, "The last 100 jobs, the newest first", (), bulk_schemas.RECORDS),
    _read("get_job", "job", jobs.get_job, "One job", bulk_schemas.JOB_PARAMETERS, bulk_schemas.RECORD),
    _read(
        "watch_job",
        "jobs/live",
        jobs.watch_job,
        "The progress of a job as server-sent events, until it stops",
        bulk_schemas.JOB_PARAMETERS,
        bulk_schemas.EVENTS,
    ),
    _act("pause_job", "jobs/pause", jobs.pause_job, "Stop a job between two batches"),
    _act("resume_job", "jobs/resume", jobs.resume_job, "Go on with a job that was paused, interrupted or failed"),
    _act("cancel_job", "jobs/cancel", jobs.cancel_job, "Stop a job for good"),
)
