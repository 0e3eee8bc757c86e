"""The check of an open store: its invariants, and its memory against what recovery would load from its journal."""

from unibus.core.lifecycle.invariants import differences, violations
from unibus.core.lifecycle.state.deadlines import NEVER
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.seam.journal import Journal
from unibus.stores.seam.recovery import load


def checked(state: StoreState, journal: Journal, now_ns: int) -> list[str]:
    """A text for each broken invariant and each difference. The caller locks the store and its journal meanwhile."""
    found = violations(state)
    other = StoreState(NEVER)
    try:
        # Without snapshots the log alone has the state, so it is comparable only while nothing was pruned.
        if journal.snapshots or journal.oldest == 1:
            load(journal, other)
            found += violations(other)
            found += differences(state, other, now_ns)
    finally:
        other.release()  # Breaks reference cycles: the garbage collector does not see compiled objects.
    return found
