"""The operations of this package."""

from typing import Final

from unibus.core.access.rights import Right
from unibus.endpoints.http.monitoring import console, health, metrics, pages, proof, reset
from unibus.endpoints.http.monitoring.exposition import CONTENT_TYPE
from unibus.endpoints.http.operation import Handler, Operation

_Schema = dict[str, object]
_TEXT: Final[_Schema] = {"type": "string"}
_COUNT: Final[_Schema] = {"type": "integer", "minimum": 0}
_STATUS: Final[_Schema] = {"type": "string", "enum": ["healthy", "degraded", "unhealthy"]}


def _content(media: str, schema: _Schema) -> dict[str, object]:
    return {media: {"schema": schema}}


def _object(required: str, **properties: object) -> dict[str, object]:
    return _content(
        "application/json", {"type": "object", "required": required.split(), "properties": dict(properties)}
    )


_SUMS: Final = (
    *("queues", "topics", "subscriptions", "active_messages", "deadletter_messages"),
    *("scheduled_messages", "active_locks", "stalled_consumers"),
)
_OVERALL: Final = _object(
    "status reasons",
    status=_STATUS,
    reasons={"type": "array", "items": _TEXT},
    **dict.fromkeys(_SUMS, _COUNT),
)


def _health(name: str, shape: str, handler: Handler, summary: str, schema: dict[str, object]) -> Operation:
    """A health check. It needs no key: orchestrators have none."""
    return Operation(
        name, "GET", shape, None, handler, summary, (shape,), (200, 503), tag="monitoring", response_schema=schema
    )


def _page(name: str, shape: str, handler: Handler, summary: str, media: str, in_document: bool = False) -> Operation:
    """A page for operators. It needs Listen on the namespace: that right, which allows receiving every message, also
    allows counting them."""
    return Operation(
        name,
        "GET",
        shape,
        Right.LISTEN,
        handler,
        summary,
        (shape,),
        tag="monitoring",
        response_schema=_content(media, {"type": "object"} if media == "application/json" else _TEXT),
        in_document=in_document,
    )


_HTML: Final = "text/html"
_METRICS: Final = CONTENT_TYPE.partition(";")[0]

MONITORING: Final[tuple[Operation, ...]] = (
    _health(
        "health",
        "/health",
        health.health,
        "Whether a send would work, with the body of Microsoft's emulator",
        _object("status message", status=_STATUS, message=_TEXT),
    ),
    _health("health_overall", "/servicebus/health", health.overall, "State and sums of the namespace", _OVERALL),
    _health(
        "health_live",
        "/servicebus/health/live",
        health.live,
        "Whether the process answers",
        _object("status", status=_STATUS),
    ),
    _health(
        "health_ready",
        "/servicebus/health/ready",
        health.ready,
        "Whether the store works",
        _object("status", status=_STATUS),
    ),
    _health(
        "health_consumers",
        "/servicebus/health/consumers",
        health.consumers,
        "Whether no consumer has stopped",
        _object("status stalled_consumers", status=_STATUS, stalled_consumers=_COUNT),
    ),
    _page("metrics", "/metrics", metrics.metrics, "Metrics as Prometheus reads them", _METRICS, True),
    _page(
        "servicebus_metrics",
        "/servicebus/metrics",
        metrics.metrics,
        "Metrics as Prometheus reads them",
        _METRICS,
        True,
    ),
    _page("openapi", "/openapi.json", pages.openapi, "This document", "application/json"),
    _page("servicebus_openapi", "/servicebus/openapi.json", pages.openapi, "This document", "application/json"),
    _page("docs", "/docs", pages.docs, "This document, to read", _HTML),
    _page("servicebus_docs", "/servicebus/docs", pages.docs, "This document, to read", _HTML),
    Operation(
        "ca_certificate",
        "GET",
        "/unibus/v1/ca.pem",
        None,
        pages.certificate,
        "The certificate of the CA that a client has to trust",
        ("/unibus/v1/ca.pem",),
        tag="monitoring",
        response_schema=_content("application/x-pem-file", _TEXT),
    ),
    Operation(
        "proof",
        "GET",
        "/unibus/v1/proof",
        None,
        proof.proof,
        "A signature over a nonce by the key of FILE.serve.json, for commands on this machine",
        ("/unibus/v1/proof",),
        tag="monitoring",
        parameters=(
            {
                "name": "nonce",
                "in": "query",
                "required": True,
                "schema": {"type": "string", "pattern": "^[0-9a-f]{32,128}$"},
            },
        ),
        response_schema=_object("proof", proof=_TEXT),
    ),
    Operation(
        "reset",
        "POST",
        "/unibus/v1/reset",
        Right.MANAGE,
        reset.reset,
        "Delete every entity; for tests, and only where the server allows it",
        ("/unibus/v1/reset",),
        tag="monitoring",
        response_schema=_object("deleted", deleted=_COUNT),
    ),
    Operation(
        "console",
        "GET",
        "/",
        Right.LISTEN,
        console.page,
        "The page of this server, for browsers",
        ("/",),
        tag="monitoring",
        in_document=False,
        media=console.HTML,
    ),
    *[
        # No key needed: the files are the same for every server, and contain nothing of this one.
        Operation(
            f"console_{name.replace('.', '_')}",
            "GET",
            f"/console/{name}",
            None,
            console.static(name),
            "A file of the page",
            (f"/console/{name}",),
            tag="monitoring",
            in_document=False,
        )
        for name in console.STATIC
    ],
)
