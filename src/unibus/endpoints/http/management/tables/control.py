"""The server process: status, log, stop."""

from typing import Final

from unibus.core.access.rights import Right
from unibus.endpoints.http.management import control
from unibus.endpoints.http.management import documentation as doc
from unibus.endpoints.http.management.tables.section import Section
from unibus.endpoints.http.operation import Operation
from unibus.endpoints.log_memory import LINES_MAX

_SECTION: Final = Section("server")
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

CONTROL: Final[tuple[Operation, ...]] = (
    _SECTION.get(
        *("server", "server", control.status), "Version, store, health and connections", _STATUS, right=Right.LISTEN
    ),
    _SECTION.get(
        *("server_live", "server/live", control.live),
        "The same with rates, once per second, as server-sent events",
        doc.LIVE_ANSWER,
        right=Right.LISTEN,
    ),
    _SECTION.get(
        *("server_errors", "server/errors", control.errors),
        "The last warnings and errors of the log",
        doc.answered("errors", errors=doc.listed(_LINE)),
        right=Right.LISTEN,
    ),
    _SECTION.get(
        *("server_logs", "server/logs", control.logs),
        "The last lines of the log; with follow also new ones, as server-sent events",
        doc.answered("lines", lines=doc.listed(_LINE)) | doc.LIVE_ANSWER,
        parameters=(
            doc.query("count", "At most this many of the last lines.", doc.number(0, LINES_MAX)),
            doc.query("follow", "1: continue with new lines.", doc.FLAG),
        ),
    ),
    _SECTION.post(
        *("server_stop", "server/stop", control.stop),
        "Answer in-flight requests, then stop the server",
        doc.answered("connections requests_in_flight", connections=doc.WHOLE, requests_in_flight=doc.WHOLE),
        statuses=(202,),
    ),
)
