"""The rows of `unibus top`: one entity at one look, and how much went through it since the look before.

The rates are counted from the changes that were written between two looks, so they are what happened, by any process.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from unibus.stores.seam.store import EntityInfo
    from unibus.stores.seam.store_view import Flow, StoreReader


DEAD_LETTERS: Final = "dead-letter queue"


@dataclass(frozen=True)
class TopRow:
    """One entity at one look. Rates are None at the first one. `oldest_s` is None where nothing waits."""

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
    """Looks again and again, and tells what went through in between."""

    def __init__(self, reader: "StoreReader") -> None:
        self._reader = reader
        self._before: dict[str, tuple[int, int]] | None = None
        self._since = 0
        self._at_s = 0.0

    def look(self) -> list[TopRow]:
        found = [each for each in self._reader.entities() if each.kind != DEAD_LETTERS]
        now_s, now_ns = time.monotonic(), time.time_ns()
        flows = self._reader.flows()
        passed_s = now_s - self._at_s
        counts = self._before is not None and self._since == self._reader.counting_since and passed_s > 0
        before = (self._before or {}) if counts else None
        rows = [_row(info, now_ns, _rates(info.name, flows, before, passed_s)) for info in found]
        self._before = {name: (flow.came, flow.went) for name, flow in flows.items()}
        self._since, self._at_s = self._reader.counting_since, now_s
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
