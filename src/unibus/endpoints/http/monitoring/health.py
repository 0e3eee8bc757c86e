"""Health checks for tools that wait for the emulator, for orchestrators, and for people.

    /health                       the emulator's exact body; healthy only if a send would work
    /servicebus/health            sums and state: healthy, degraded, unhealthy
    /servicebus/health/live       the process answers
    /servicebus/health/ready      the store works (a full disk is degraded: messages can still be received)
    /servicebus/health/consumers  no consumer has stopped

None of them needs a key, so they report counts and states only, no names and no file paths.
"""

from typing import Final

from unibus.bus.api.broker import HealthStatus
from unibus.endpoints.error_body import JSON
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service
from unibus.errors import BusError

_HEALTHY: Final = b'{"status":"healthy","message":"Service is healthy."}'
_UNHEALTHY: Final = b'{"status":"unhealthy","message":"Service is unhealthy."}'
_NO_CACHE: Final = ("Cache-Control", "no-store")


async def health(service: Service, request: Request) -> Response:
    """Testcontainers, Aspire and Microsoft's samples wait for this body before they send."""
    found = _state(service)
    works = found is not None and found.ok and not _is_full(found)
    body = _HEALTHY if works else _UNHEALTHY
    return Response(200 if works else 503, body, f"{JSON}; charset=utf-8", [_NO_CACHE])


async def live(service: Service, request: Request) -> Response:
    return _answer({"status": "healthy"})


async def ready(service: Service, request: Request) -> Response:
    found = _state(service)
    return _answer({"status": "unhealthy" if found is None else found.status})


async def overall(service: Service, request: Request) -> Response:
    found = _state(service)
    if found is None or not found.ok:
        return _answer({"status": "unhealthy", "reasons": ["store"]})
    try:
        sums = await service.overview.sums(service.broker)
    except BusError:
        return _answer({"status": "unhealthy", "reasons": ["store"]})
    reasons = ["stalled_consumers"] if sums.stalled else []
    if found.status != "healthy":
        reasons.append("disk_full" if _is_full(found) else "not_as_configured")
    answer: dict[str, object] = {"status": "degraded" if reasons else "healthy", "reasons": reasons}
    answer |= {"queues": sums.queues, "topics": sums.topics, "subscriptions": sums.subscriptions}
    answer |= {"active_messages": sums.active, "deadletter_messages": sums.dead, "scheduled_messages": sums.scheduled}
    answer |= {"active_locks": sums.locked, "stalled_consumers": sums.stalled}
    return _answer(answer)


async def consumers(service: Service, request: Request) -> Response:
    """503 while a consumer has stopped. An alarm of its own, because the bus itself is ready."""
    sums = await service.overview.sums(service.broker)
    status = "degraded" if sums.stalled else "healthy"
    response = _answer({"status": status, "stalled_consumers": sums.stalled})
    response.status = 503 if sums.stalled else 200
    return response


def _state(service: Service) -> HealthStatus | None:
    """The health of the bus; None while the store is being reopened."""
    try:
        return service.broker.health()
    except BusError:
        return None


def _is_full(found: HealthStatus) -> bool:
    """Whether the disk is full, which is the store's only warning: it delivers messages and accepts none (decision
    0022)."""
    return found.store is not None and bool(found.store.warning)


def _answer(value: dict[str, object]) -> Response:
    return json_response(value, 503 if value["status"] == "unhealthy" else 200, [_NO_CACHE])
