"""The status of a lake: how far it is behind its sources, its last batches, and its size. Without Spark.

The lag in seconds is the age of the first event that the lake does not have, but its source has. `unibus capture
--status` shows how far a capture is behind its bus.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unibus.capture.event_source import EventPiece, EventSource
from unibus.errors import BusError
from unibus.pipeline.plan import HistoryRange, last_ranges
from unibus.pipeline.reports.answer import Value, plain
from unibus.pipeline.set_aside import ERRORS, checked

if TYPE_CHECKING:
    from unibus.pipeline.lake import Lake

BATCHES_SHOWN: Final = 5
QUARANTINE_SHOWN: Final = 10


class DomainLag(msgspec.Struct):
    domain: str
    where: str
    up_to: int
    last: int
    events_behind: int
    seconds_behind: float
    error: str = ""
    set_aside: bool = False
    """Runs leave the source out because of the error, until it is repaired."""


class TableSize(msgspec.Struct):
    table: str
    files: int
    rows: int
    bytes: int


class PipelineStatus(msgspec.Struct):
    lake: str
    batch: int
    domains: list[DomainLag]
    batches: list[dict[str, Value]]
    tables: list[TableSize]
    quarantine: list[dict[str, Value]]
    quarantined: int
    server: str = ""


def read_status(lake: "Lake", sources: Sequence[EventSource]) -> PipelineStatus:
    before = last_ranges(lake)
    found = lake.folder("quarantine")
    quarantined = found.read(found.files()).to_pylist()
    quarantined.sort(key=lambda row: (-row["batch"], row["domain"], row["first"]))
    return PipelineStatus(
        lake=lake.path,
        batch=lake.done(),
        domains=[_lag(source, before) for source in sources],
        batches=[_batch(row) for row in lake.last_batches(BATCHES_SHOWN)],
        tables=[_size(lake, name) for name in lake.tables()],
        quarantine=[{name: plain(value) for name, value in row.items()} for row in quarantined[:QUARANTINE_SHOWN]],
        quarantined=len(quarantined),
    )


def _lag(source: EventSource, before: Sequence[HistoryRange]) -> DomainLag:
    start = next((each for each in before if _is_of(each, source)), HistoryRange(source.domain, 0, 0))
    up_to = start.up_to
    lag = DomainLag(start.domain, source.where, up_to, up_to, 0, 0.0)
    try:
        checked(source, before)
    except ERRORS as error:
        lag.error, lag.set_aside = error.what, True
        return lag
    try:
        lag.last = source.last()
        lag.events_behind = max(0, lag.last - up_to)
        first_us = _first_us(source, up_to, lag.last) if lag.events_behind else None
    except BusError as error:
        lag.error = error.what
    else:
        lag.seconds_behind = max(0.0, time.time() - first_us / 1e6) if first_us is not None else 0.0
    return lag


def _is_of(span: HistoryRange, source: EventSource) -> bool:
    """Compared by place if the source is so damaged that its domain is unknown."""
    return span.domain == source.domain if source.domain else span.place == source.where


def _first_us(source: EventSource, after: int, last: int) -> int | None:
    """The time of the first event after a position."""
    for piece in source.pieces(after, last):
        few = EventPiece(piece.first, min(piece.last, piece.first + 999), 0, 0, piece.path)
        for batch in source.read(few, ("seq", "ts")):
            if batch.num_rows:
                return int(batch["ts"].cast("int64")[0].as_py())
    return None


def _batch(row: dict[str, Any]) -> dict[str, Value]:
    kept = {name: plain(row[name]) for name in ("number", "at", "events", "closed", "quarantined", "seconds")}
    return {**kept, "domains": [each["domain"] for each in row["ranges"] if each["up_to"] > each["after"]]}


def _size(lake: "Lake", name: str) -> TableSize:
    files = lake.folder(name).files()
    return TableSize(name, len(files), sum(file.rows for file in files), sum(file.size for file in files))
