"""Jobs over HTTP: create, list, watch, pause, resume and cancel them. The work itself is in `bus/management/jobs`."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from unibus.bus.management.jobs.job_records import AT_REST, JobRecord, JobRequest
from unibus.endpoints.http.live import KEEP_ALIVE, KEEP_ALIVE_S, RETRY, event, live_response
from unibus.endpoints.http.messages.query_values import whole_number
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service

LIVE_S: Final = 0.2
"""The shortest time between two events of one job: a job may run hundreds of batches per second."""

_request: Final = msgspec.json.Decoder(JobRequest)


async def create_job(service: Service, request: Request) -> Response:
    wanted = request.json_as(_request.decode)
    request.entity = wanted.entity or (wanted.filter.queue if wanted.filter is not None else None) or ""
    dry_run, target = " (dry run)" if wanted.dry_run else "", f" to {wanted.target}" if wanted.target else ""
    request.detail = f"{wanted.kind}{target}{dry_run}"
    record = await service.jobs.create(wanted, request.rule)
    request.detail = f"job {record.id}: {request.detail}"
    return json_response(record, 201)


async def list_jobs(service: Service, request: Request) -> Response:
    return json_response({"jobs": await service.jobs.records()})


async def get_job(service: Service, request: Request) -> Response:
    return json_response(await service.jobs.get(_number(request)))


async def pause_job(service: Service, request: Request) -> Response:
    return json_response(await service.jobs.pause(_number(request)))


async def resume_job(service: Service, request: Request) -> Response:
    return json_response(await service.jobs.resume(_number(request)))


async def cancel_job(service: Service, request: Request) -> Response:
    return json_response(await service.jobs.cancel(_number(request)))


async def watch_job(service: Service, request: Request) -> Response:
    """Progress as server-sent events; the last event is the record of a job that is no longer queued or running."""
    number = _number(request)
    await service.jobs.get(number)
    return live_response(_events(service, number))


async def _events(service: Service, number: int) -> AsyncGenerator[bytes, None]:
    yield RETRY
    sent: JobRecord | None = None
    while True:
        changed = service.jobs.changed  # Taken before reading the record, so no change is missed in between.
        record = await service.jobs.get(number)
        if record is not sent:
            sent = record
            yield event(msgspec.json.encode(record), "job")
        if record.state in AT_REST:
            return
        try:
            await asyncio.wait_for(changed.wait(), KEEP_ALIVE_S)
        except TimeoutError:
            yield KEEP_ALIVE
        await _paced(service, number)


async def _paced(service: Service, number: int) -> None:
    """Return after LIVE_S, or at the end of the job: a client that waits for the end gets it at once."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + LIVE_S
    while True:
        changed = service.jobs.changed
        left_s = ends_s - loop.time()
        if left_s <= 0 or (await service.jobs.get(number)).state in AT_REST:
            return
        try:
            await asyncio.wait_for(changed.wait(), left_s)
        except TimeoutError:
            return


def _number(request: Request) -> int:
    number = whole_number("id", request.query.get("id", ""))
    request.detail = f"job {number}"
    return number
