"""Runs the operation of a request:

    authorize ─▶ read the body ─▶ handler ─▶ answer ─▶ observe (count, log)
        └────────────┴──────────────┴─ BusError ─▶ errors: status and body

Every request ends in exactly one answer and one observation, whatever the handler raises. Authorization comes before
the body, so a caller without rights cannot make the server buffer bytes. A client that has closed its connection gets
no answer, and its handler is cancelled (`while_connected`).
"""

import asyncio
import itertools
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Final, TypeVar
from uuid import uuid4

from unibus.endpoints.http.errors import UNEXPECTED, error_body, error_response
from unibus.endpoints.http.operation import Operation
from unibus.endpoints.http.request import LIVE, Disconnected, Request, Response, Send
from unibus.endpoints.http.routing import named_entity
from unibus.endpoints.http.service import Service
from unibus.errors import BusError, StoreFailed

log = logging.getLogger("unibus.http")
T = TypeVar("T")

_CORRELATION: Final = ("x-correlation-id", "correlation-id", "x-ms-correlation-request-id")
_CORRELATION_FORM: Final = re.compile(r"[!-~]{1,128}")
# Unique in the logs, and cheap: a random id for each request would cost more than the routing.
_PROCESS: Final = uuid4().hex[:16]
_numbers: Final = itertools.count(1)
_EMPTY_BODY: Final = frozenset({204, 304})

RECHECK_NS: Final = 5_000_000_000
"""The shortest time between two checks whether the client of a stream still has its right."""


async def run(service: Service, operation: Operation, request: Request, send: Send) -> None:
    began_ns = time.perf_counter_ns()
    rule, code = "", ""
    try:
        if operation.names_entity:
            request.entity = named_entity(request.query.get("entity", ""))
        rule = request.rule = authorized(service, operation, request)
        if operation.has_body:
            await request.read_body(service.body_bytes_max)
        response = await operation.handler(service, request)
    except BusError as error:
        if isinstance(error, StoreFailed):
            service.report(error)
        response, code = error_response(request, error), error.code
    except (Disconnected, asyncio.CancelledError):
        service.observer.answered(request, operation.name, 499, time.perf_counter_ns() - began_ns, "disconnected", rule)
        raise
    except Exception:
        log.exception("a defect: the operation %s raised an unexpected error", operation.name)
        what = f"the operation {operation.name} failed because of a defect in the server"
        response = error_body(request, UNEXPECTED, "internal_error", what, "the log of the server has the error")
        code = "internal_error"
    try:
        if response.stream is None:
            await answer(request, response, send)
        else:
            code = await _answer_stream(service, operation, request, response, send)
    finally:
        took_ns = time.perf_counter_ns() - began_ns
        service.observer.answered(request, operation.name, response.status, took_ns, code, rule)


def authorized(service: Service, operation: Operation, request: Request) -> str:
    """The name of the rule that allows the request, empty if none is needed; Unauthorised or Forbidden otherwise."""
    if operation.right is None:
        return ""
    if operation.for_own_scope:
        return service.authorization.check_own_scope(request, operation.right)
    return service.authorization.check(request, operation.right, request.entity)


async def answer(request: Request, response: Response, send: Send) -> None:
    """Send an answer, with the correlation id of the request or a new one. A stream has no Content-Length."""
    headers: list[tuple[bytes, bytes]] = [(b"x-correlation-id", correlation_id(request).encode("ascii"))]
    if response.content_type:
        headers.append((b"content-type", response.content_type.encode("latin-1")))
    if response.status not in _EMPTY_BODY and response.stream is None:
        headers.append((b"content-length", str(len(response.body)).encode("ascii")))
    headers += [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in response.headers]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if response.stream is None:
        await send({"type": "http.response.body", "body": response.body})


async def _answer_stream(
    service: Service, operation: Operation, request: Request, response: Response, send: Send
) -> str:
    """Send the pieces of a stream, each when the client has read most of the former ones. Returns the error code.

    A live answer ends cleanly when the server stops: its client reconnects and resumes from its position. Any other
    stream that cannot be completed is cut off, so that its client does not take a part for the whole.
    """
    pieces, is_live = response.stream, response.is_live
    assert pieces is not None
    if is_live:
        request.scope[LIVE] = True
    code = ""
    try:
        await answer(request, response, send)
        writing = _write(service, operation, request, pieces, send)
        await while_connected(request, _while_serving(service, writing) if is_live else writing)
    except BusError as error:
        if isinstance(error, StoreFailed):
            service.report(error)
        code = error.code
    except Exception as error:
        if isinstance(error, Disconnected):
            raise
        log.exception("a defect: the operation %s raised an unexpected error while it was answering", operation.name)
        code = "internal_error"
    finally:
        await pieces.aclose()
    if not code or is_live:
        await send({"type": "http.response.body", "body": b""})
    return code


async def _write(
    service: Service, operation: Operation, request: Request, pieces: AsyncGenerator[bytes, None], send: Send
) -> None:
    """Send the pieces, and authorize again every few seconds: a stream ends soon after its key is revoked."""
    check_ns = time.monotonic_ns() + RECHECK_NS
    async for piece in pieces:
        if time.monotonic_ns() >= check_ns:
            authorized(service, operation, request)
            check_ns = time.monotonic_ns() + RECHECK_NS
        await send({"type": "http.response.body", "body": piece, "more_body": True})


def correlation_id(request: Request) -> str:
    """The id that the client sent, if it is safe in a header and a log line; else a new one."""
    for name in _CORRELATION:
        given = request.headers.get(name)
        if given is not None and _CORRELATION_FORM.fullmatch(given):
            return given
    found = request.scope.get("unibus.correlation_id")
    if not isinstance(found, str):
        found = f"{_PROCESS}{next(_numbers):016x}"
        request.scope["unibus.correlation_id"] = found
    return found


async def while_connected(
    request: Request,
    work: Coroutine[object, object, T],
    undo: Callable[[T], Awaitable[None]] | None = None,
) -> T:
    """Run work that may wait long; cancel it and raise Disconnected when the client closes the connection.

    If the work finishes at the same moment as the client disconnects, its result cannot be answered: `undo` gets it.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.disconnected())
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not gone.done():
            return task.result()
        if task.done() and undo is not None and task.exception() is None:
            await undo(task.result())
        raise Disconnected
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _while_serving(service: Service, work: Coroutine[object, object, None]) -> None:
    """Run work until it is done, or cancel it when the server stops or its store fails."""
    task = asyncio.ensure_future(work)
    ending = asyncio.ensure_future(service.interrupted.wait())
    try:
        await asyncio.wait([task, ending], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        ending.cancel()
        task.cancel()
        await asyncio.gather(task, ending, return_exceptions=True)
