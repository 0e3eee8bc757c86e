"""The server process over HTTP: its status, its log, and its stop."""

import os
import time
from collections.abc import AsyncGenerator
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import msgspec

from unibus.bus.api.broker import Broker, HealthStatus
from unibus.bus.management.settings.entities import EntityWatch, Totals
from unibus.bus.management.settings.server import NAME, ServerStatus, build, reasons_of
from unibus.bus.management.wake import Wake
from unibus.endpoints.http.live import KEEP_ALIVE, KEEP_ALIVE_S, RETRY, event, live_response
from unibus.endpoints.http.management.query import flag, whole
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service
from unibus.endpoints.log_memory import LINES_MAX, LogLine, RecentLog
from unibus.errors import BusError, Forbidden

_NO_CACHE: Final = [("Cache-Control", "no-store")]
LINES_DEFAULT: Final = 100
STALLED_FRESH_NS: Final = 10_000_000_000
"""How old the number of stalled consumers may be: computing it reads all entities, and it changes over minutes."""


async def status(service: Service, request: Request) -> Response:
    return json_response(await _status(service, None), headers=_NO_CACHE)


async def _status(service: Service, watch: EntityWatch | None) -> ServerStatus:
    health, stalled = await _health(service)
    control, store = service.control, health.store
    identity = None if store is None else store.identity
    totals = Totals() if watch is None else watch.totals
    connections, in_flight = control.connections()
    kind, python = build()
    reasons = reasons_of(health, stalled)
    state = "degraded" if stalled and health.status == "healthy" else health.status
    now_ns = time.time_ns()
    return ServerStatus(
        name=NAME,
        version=_version(),
        build=kind,
        python=python,
        pid=os.getpid(),
        started_ns=control.started_ns,
        uptime_s=round((now_ns - control.started_ns) / 1e9, 3) if control.started_ns else 0.0,
        store=control.store_url,
        durability="" if store is None else store.durability,
        health=state,
        reasons=reasons,
        connections=connections,
        requests_in_flight=in_flight,
        in_per_s=totals.in_per_s,
        out_per_s=totals.out_per_s,
        entities=None if watch is None else totals.entities,
        active=None if watch is None else totals.active,
        dead=None if watch is None else totals.dead,
        messages=0 if store is None else store.messages,
        history_bytes=0 if store is None else store.history_bytes,
        store_id="" if identity is None else identity.store,
        incarnation="" if identity is None else identity.incarnation,
        last_error=control.recent_log.errors[-1].number if control.recent_log.errors else 0,
    )


async def _health(service: Service) -> tuple[HealthStatus, int]:
    """The health of the bus, and how many consumers have stopped. A store that is being reopened is unhealthy."""
    try:
        health = service.broker.health()
        return health, (await service.overview.sums(service.broker, STALLED_FRESH_NS)).stalled
    except BusError as error:
        return HealthStatus("unhealthy", error.what), 0


def _version() -> str:
    try:
        return version(NAME)
    except PackageNotFoundError:
        return "unknown"


# Live


async def live(service: Service, request: Request) -> Response:
    return live_response(_statuses(service))


async def _statuses(service: Service) -> AsyncGenerator[bytes, None]:
    watch, latest = service.shared(EntityWatch), service.shared(_Latest)
    yield RETRY
    async with watch.watching():
        while watch.failure is None:
            yield await latest.status(service, watch)
            version = watch.version
            while watch.version == version and watch.failure is None:
                if not await watch.changed.wait(KEEP_ALIVE_S):
                    yield KEEP_ALIVE
        raise watch.failure


class _Latest:
    """The status of the latest reading, encoded once for all clients."""

    def __init__(self, broker: Broker) -> None:
        self._reading = -1
        self._requests = 0
        self._at_s = 0.0
        self._event = b""

    async def status(self, service: Service, watch: EntityWatch) -> bytes:
        reading = watch.readings
        if reading != self._reading:
            rate = self._rate(sum(service.observer.statistics.requests.values()), reading)
            self._reading = reading
            found = msgspec.structs.replace(await _status(service, watch), requests_per_s=rate)
            self._event = event(msgspec.json.encode(found), "status")
        return self._event

    def _rate(self, requests: int, reading: int) -> float | None:
        now_s, before_s, before = time.monotonic(), self._at_s, self._requests
        self._at_s, self._requests = now_s, requests
        # Only between consecutive readings: without a client there are none, perhaps for hours.
        if reading != self._reading + 1 or now_s <= before_s:
            return None
        return round((requests - before) / (now_s - before_s), 1)


# The log


async def errors(service: Service, request: Request) -> Response:
    """The last warnings and errors, the newest last, without tracebacks (those are in the log)."""
    found = [_line(each, whole_text=False) for each in list(service.control.recent_log.errors)]
    return json_response({"errors": found}, headers=_NO_CACHE)


async def logs(service: Service, request: Request) -> Response:
    """The last lines of the log; with `follow` also new ones, as server-sent events."""
    count = whole(request, "count", LINES_DEFAULT, 0, LINES_MAX)
    recent = service.control.recent_log
    if flag(request, "follow"):
        return live_response(_log_lines(recent, count))
    found = recent.after(recent.last_number - count)
    return json_response({"lines": [_line(each) for each in found]}, headers=_NO_CACHE)


async def _log_lines(recent: RecentLog, count: int) -> AsyncGenerator[bytes, None]:
    wake = Wake()
    stop = recent.watch(wake.wake_soon)
    try:
        yield RETRY
        number = max(0, recent.last_number - count)
        while True:
            coming = recent.after(number)
            for line in coming:
                number = line.number
                yield event(msgspec.json.encode(_line(line)), "line", line.number)
            if not coming and not await wake.wait(KEEP_ALIVE_S):
                yield KEEP_ALIVE
    finally:
        stop()


def _line(line: LogLine, whole_text: bool = True) -> dict[str, object]:
    text = line.text if whole_text else line.text.partition("\n")[0]
    return {"number": line.number, "at_ns": line.at_ns, "level": line.level, "text": text}


# Stopping


async def stop(service: Service, request: Request) -> Response:
    """Stop as SIGTERM does: in-flight requests are answered, this one too. Live answers end at once."""
    stop_server = service.control.stop
    if stop_server is None:
        raise Forbidden("this server is part of another program and cannot be stopped alone", "stop that program")
    connections, in_flight = service.control.connections()
    stop_server()
    return json_response({"connections": connections, "requests_in_flight": in_flight}, 202)
