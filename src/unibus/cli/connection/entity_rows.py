"""The rows of `unibus top`: the counts of an entity at one moment, and its rates since the refresh before.

The rates come from the changes that the store wrote between two refreshes, so they include the work of all processes.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from unibus.stores.seam.store import EntityInfo
    from unibus.stores.seam.store_view import Flow, StoreView


DEAD_LETTERS: Final = "dead-letter queue"


@dataclass(frozen=True)
class TopRow:
    """One entity at one refresh. Rates are None at the first one. `oldest_s` is None if the backlog is empty."""

    name: str
    kind: str
    waiting: int
    in_flight: int
    scheduled: int
    deferred: int
    dead: int
    oldest_s: float | None
    in_per_s: float | None = None
    out_per_s: float | None = None


class TopWatch:
    """Reads the entities at each `look`, with the rates since the look before."""

    def __init__(self, reader: "StoreView") -> None:
        from unibus.stores.seam.store_view import FlowCounter

        self._reader = reader
        self._counter = FlowCounter(reader)
        self._before: dict[str, tuple[int, int]] | None = None
        self._since = 0
        self._at_s = 0.0

    def look(self) -> list[TopRow]:
        with self._reader.moment():
            flows = self._counter.count()
            found = [each for each in self._reader.entities() if each.kind != DEAD_LETTERS]
        now_s, now_ns = time.monotonic(), time.time_ns()
        passed_s = now_s - self._at_s
        counts = self._before is not None and self._since == self._counter.since and passed_s > 0
        before = (self._before or {}) if counts else None
        rows = [_row(info, now_ns, _rates(info.name, flows, before, passed_s)) for info in found]
        self._before = {name: (flow.came, flow.went) for name, flow in flows.items()}
        self._since, self._at_s = self._counter.since, now_s
        return rows


def _rates(
    name: str, flows: "dict[str, Flow]", before: dict[str, tuple[int, int]] | None, passed_s: float
) -> tuple[float | None, float | None]:
    if before is None:
        return None, None
    flow = flows.get(name)
    if flow is None:
        return 0.0, 0.0
    came, went = before.get(name, (0, 0))
    return (flow.came - came) / passed_s, (flow.went - went) / passed_s


def _row(info: "EntityInfo", now_ns: int, rates: tuple[float | None, float | None]) -> TopRow:
    oldest_s = max(0.0, (now_ns - info.oldest_ns) / 1e9) if info.oldest_ns else None
    counts = (info.active, info.locked, info.scheduled, info.deferred, info.dead)
    return TopRow(info.name, info.kind, *counts, oldest_s, *rates)
