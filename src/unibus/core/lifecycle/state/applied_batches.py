# mypyc: compiled
"""The batches with an id that a store has applied lately, with their results: to answer a copy of one of them.

    evicted_ns                                     last_ns
        │  B1 ── B2 ── B3 ── B4 ── B5 ── B6 ── B7    │            by age_ns, which increases strictly
    ────┴────────────────────────────────────────────┴──▶
    a copy of an older first attempt is refused       a new batch

The invariant: it has every batch with an age beyond `evicted_ns`, and no other. A batch is at least as old as its first
attempt says, so a copy whose first attempt is later than `evicted_ns` and whose id is unknown was never applied.

This holds also if the clock is set back between two openings, because it compares ages with the ages that were evicted,
and not with the clock. The price: until the clock has passed the last age that was evicted, new batches with an id are
refused as well; after a step of less than ten minutes that is mostly none of them.

Every change is absolute: one that is replayed over a newer snapshot is ignored.
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from unibus.core.lifecycle.state.changes import Applied
from unibus.limits import BATCH_ID_KEPT_S, BATCH_RESULTS_KEPT_MAX

KEPT_NS: Final = int(BATCH_ID_KEPT_S * 1_000_000_000)

RESULTS_MAX = BATCH_RESULTS_KEPT_MAX  # Not final: tests set a small bound.


@final
class AppliedBatches:
    """Bounded by age, and by the number of results: a batch counts for its results, and for at least one."""

    def __init__(self) -> None:
        self.known: dict[str, Applied] = {}
        self.unsaved: list[Applied] = []  # What the next snapshot has to write.
        self.evicted_ns: i64 = 0
        self.last_ns: i64 = 0
        self._by_age: deque[Applied] = deque()  # The first item of a dict is slow to find after deletions.
        self._results: i64 = 0

    def add(self, batch: Applied, saves: bool) -> None:
        """Remember it, for the next snapshot too if the store `saves`, and evict what is beyond the bounds. One that
        was added before, or is evicted already, is ignored."""
        if batch.age_ns <= self.last_ns:
            return
        if saves:
            self.unsaved.append(batch)
        self.last_ns = batch.age_ns
        self.known[batch.batch_id] = batch
        self._by_age.append(batch)
        self._results += max(1, len(batch.results))
        before_ns = batch.at_ns - KEPT_NS
        while len(self._by_age) > 1 and (self._results > RESULTS_MAX or self._by_age[0].age_ns < before_ns):
            oldest = self._by_age.popleft()
            del self.known[oldest.batch_id]
            self._results -= max(1, len(oldest.results))
            self.evicted_ns = oldest.age_ns

    def restore(self, batches: list[Applied], evicted_ns: int) -> None:
        """From a snapshot, in the order of ages."""
        self.evicted_ns = evicted_ns
        self.last_ns = evicted_ns
        for batch in batches:
            self.add(batch, False)
