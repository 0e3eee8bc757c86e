"""The observer: counts every answer, and writes two logs of JSON lines.

    unibus.http.request   one line for each request
    unibus.http.audit     one line for each change of an entity or a rule, and for each refused access

A line contains no secrets: no header but the correlation id, no query, no body, no token. Text from a client is escaped
to printable ASCII, so that it cannot forge a line or control a terminal. A log that is switched off costs one check per
request.
"""

import json
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

from unibus.core.access.rights import Right
from unibus.endpoints.http.operation import Operation
from unibus.endpoints.http.request import Request
from unibus.endpoints.http.runner import correlation_id
from unibus.endpoints.http.statistics import ENTITIES_MAX, LATENCY_OF, Statistics

REQUEST_LOG: Final = "unibus.http.request"
AUDIT_LOG: Final = "unibus.http.audit"
REFUSED: Final = frozenset({"unauthorised", "forbidden"})
TEXT_CHARS_MAX: Final = 512
"""Longer texts are truncated: a name has at most 260 characters, but a path may have thousands."""

_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_NOTHING_RECEIVED: Final = 204


class Observation:
    """`administrative` are the names of the operations that change entities and rules. `clock` returns wall time."""

    def __init__(
        self,
        administrative: Iterable[str] = (),
        histograms_max: int = ENTITIES_MAX,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.statistics: Final = Statistics(histograms_max)
        self._administrative: Final = frozenset(administrative)
        self._clock: Final = clock
        self._requests: Final = logging.getLogger(REQUEST_LOG)
        self._audit: Final = logging.getLogger(AUDIT_LOG)

    def answered(self, request: Request, operation: str, status: int, nanoseconds: int, error: str, rule: str) -> None:
        statistics = self.statistics
        statistics.count(operation, status, error)
        kind = LATENCY_OF.get(operation)
        if kind is not None and status < 300 and status != _NOTHING_RECEIVED:
            statistics.latencies[kind].record(request.entity.casefold(), nanoseconds)
        if self._requests.isEnabledFor(logging.INFO):
            self._requests.info("%s", self._line(request, operation, status, nanoseconds, error, rule))
        if error in REFUSED or operation in self._administrative:
            if self._audit.isEnabledFor(logging.INFO):
                event = "refused" if error in REFUSED else "failed" if error else "changed"
                line = self._line(request, operation, status, nanoseconds, error, rule, event)
                self._audit.info("%s", line)

    def _line(
        self, request: Request, operation: str, status: int, nanoseconds: int, error: str, rule: str, event: str = ""
    ) -> str:
        now = datetime.now(UTC) if self._clock is None else datetime.fromtimestamp(self._clock(), UTC)
        record: dict[str, object] = {"time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        if event:
            record["event"] = event
        record["operation"] = operation
        record["entity"] = request.entity[:TEXT_CHARS_MAX]
        if request.detail:
            record["detail"] = request.detail[:TEXT_CHARS_MAX]
        record["status"] = status
        record["duration_ms"] = round(nanoseconds / 1e6, 3)
        record["peer"] = request.peer[:TEXT_CHARS_MAX]
        record["rule"] = rule
        record["correlation_id"] = correlation_id(request)
        record["error"] = error
        record["bytes"] = len(request.body)
        return _printable(record)


def _printable(record: dict[str, object]) -> str:
    """One line of printable ASCII. Nearly every record is that already, so the faster encoder is tried first."""
    try:
        text = msgspec.json.encode(record).decode()
    except UnicodeEncodeError:  # Half of a surrogate pair.
        text = ""
    if not text.isascii() or not text.isprintable() or not text:
        # DEL is the one ASCII control character that JSON does not escape.
        text = json.dumps(record, separators=(",", ":")).replace("\x7f", "\\u007f")
    return text


def administrative(operations: Iterable[Operation]) -> list[str]:
    """The names of the operations that change entities and rules."""
    return [
        each.name
        for each in operations
        if each.right is Right.MANAGE and each.method not in _READING and not each.only_reads
    ]


def switch_logs(request_log: bool, audit_log: bool) -> None:
    """Switch the two logs on or off. They log from INFO on, whatever the level of the root logger."""
    logging.getLogger(REQUEST_LOG).setLevel(logging.INFO if request_log else logging.WARNING)
    logging.getLogger(AUDIT_LOG).setLevel(logging.INFO if audit_log else logging.WARNING)


def log_to(stream: TextIO) -> logging.Handler:
    """Write the lines of both logs unchanged to a stream, and to no other handler of the process."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in (REQUEST_LOG, AUDIT_LOG):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False
    return handler


def end_log(handler: logging.Handler) -> None:
    """Undo `log_to`."""
    for name in (REQUEST_LOG, AUDIT_LOG):
        logger = logging.getLogger(name)
        logger.removeHandler(handler)
        logger.propagate = True
