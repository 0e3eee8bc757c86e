"""Dead-lettered messages, and bulk work on messages as jobs. Every operation needs Manage on the namespace."""

from typing import Final

from unibus.endpoints.http.management import bulk_schemas as schemas
from unibus.endpoints.http.management import dead_letters, jobs
from unibus.endpoints.http.management.tables.section import Section
from unibus.endpoints.http.operation import Handler, Operation

_SECTION: Final = Section("dead letters and jobs")


def _on_job(name: str, path: str, handler: Handler, summary: str) -> Operation:
    """An action on one job, which the query names. 409: the job has ended."""
    return _SECTION.post(
        name, path, handler, summary, schemas.RECORD, statuses=(200, 409), parameters=schemas.JOB_PARAMETERS
    )


BULK: Final[tuple[Operation, ...]] = (
    _SECTION.get(
        *("list_dead_letters", "dead-letters", dead_letters.list_dead_letters),
        "Dead-lettered messages that match a filter, in the order in which they were dead-lettered",
        schemas.PAGE,
        parameters=schemas.PAGE_PARAMETERS,
    ),
    _SECTION.get(
        *("list_dead_letter_groups", "dead-letters/groups", dead_letters.list_groups),
        "Numbers of dead-lettered messages by queue and reason",
        schemas.GROUPS,
        parameters=schemas.FILTER_PARAMETERS,
    ),
    _SECTION.post(
        *("create_job", "jobs", jobs.create_job),
        "Retry, redirect or discard dead-lettered messages, apply rules to them, or purge an entity",
        schemas.RECORD,
        statuses=(201,),
        request_schema=schemas.REQUEST,
    ),
    _SECTION.get("list_jobs", "jobs", jobs.list_jobs, "The last 100 jobs, newest first", schemas.RECORDS),
    _SECTION.get("get_job", "job", jobs.get_job, "One job", schemas.RECORD, parameters=schemas.JOB_PARAMETERS),
    _SECTION.get(
        *("watch_job", "jobs/live", jobs.watch_job),
        "The progress of a job as server-sent events, until it stops",
        schemas.EVENTS,
        parameters=schemas.JOB_PARAMETERS,
    ),
    _on_job("pause_job", "jobs/pause", jobs.pause_job, "Pause a job between two batches"),
    _on_job("resume_job", "jobs/resume", jobs.resume_job, "Resume a job that was paused, interrupted or failed"),
    _on_job("cancel_job", "jobs/cancel", jobs.cancel_job, "Cancel a job"),
)
