"""The server itself: status, log, stop."""

from typing import Final

from unibus.core.access.rights import Right
from unibus.endpoints.http.management import control
from unibus.endpoints.http.management import documentation as doc
from unibus.endpoints.http.operation import Handler, Operation
from unibus.endpoints.log_memory import LINES_MAX

_STATUS: Final = doc.answered(
    "name version build python pid started_ns uptime_s store durability health reasons connections",
    name=doc.TEXT,
    version=doc.TEXT,
    build={"type": "string", "enum": ["compiled", "plain"]},
    python=doc.TEXT,
    pid=doc.WHOLE,
    started_ns=doc.WHOLE,
    uptime_s={"type": "number"},
    store=doc.TEXT,
    durability=doc.TEXT,
    health={"type": "string", "enum": ["healthy", "degraded", "stopped", "unhealthy"]},
    reasons=doc.listed(doc.TEXT),
    connections=doc.WHOLE,
    requests_in_flight=doc.WHOLE,
)
_LINE: Final[doc.Schema] = {
    "type": "object",
    "required": ["number", "at_ns", "level", "text"],
    "properties": {"number": doc.WHOLE, "at_ns": doc.WHOLE, "level": doc.TEXT, "text": doc.TEXT},
}


def _read(
    path: str,
    right: Right,
    handler: Handler,
    summary: str,
    answer: doc.Schema,
    parameters: tuple[doc.Schema, ...] = (),
) -> Operation:
    shape = f"/unibus/v1/{path}"
    return Operation(
        path.replace("/", "_"),
        "GET",
        shape,
        right,
        handler,
        summary,
        (shape,),
        tag="management: server",
        parameters=parameters,
        response_schema=answer,
    )


CONTROL: Final[tuple[Operation, ...]] = (
    _read("server", Right.LISTEN, control.status, "Version, store, health and connections", _STATUS),
    _read("server/live", Right.LISTEN, control.live, "The same with rates, each second", doc.LIVE_ANSWER),
    _read(
        "server/errors",
        Right.LISTEN,
        control.errors,
        "The last warnings and errors of the log",
        doc.answered("errors", errors=doc.listed(_LINE)),
    ),
    _read(
        "server/logs",
        Right.MANAGE,
        control.logs,
        "The last lines of the log, and those that come",
        doc.answered("lines", lines=doc.listed(_LINE)) | doc.LIVE_ANSWER,
        (
            doc.query("count", "So many of the last at most.", doc.number(0, LINES_MAX)),
            doc.query("follow", "1: go on with those that come.", doc.FLAG),
        ),
    ),
    Operation(
        "server_stop",
        "POST",
        "/unibus/v1/server/stop",
        Right.MANAGE,
        control.stop,
        "Answer what is in flight, and stop",
        ("/unibus/v1/server/stop",),
        (202,),
        tag="management: server",
        response_schema=doc.answered(
            "connections requests_in_flight", connections=doc.WHOLE, requests_in_flight=doc.WHOLE
        ),
    ),
)
