"""The check of an open store: its invariants, and its state against the one that its journal describes."""

from unibus.core.lifecycle.invariants import differences, violations
from unibus.core.lifecycle.state.deadlines import NEVER
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.seam.journal import Journal


def checked(state: StoreState, journal: Journal, now_ns: int) -> list[str]:
    """Whether the state keeps its invariants and is the one that the journal describes. The caller sees to it that
    neither is changed meanwhile."""
    found = violations(state)
    other = StoreState(NEVER)
    try:
        if journal.reload(other):
            found += violations(other)
            found += differences(state, other, now_ns)
    finally:
        other.release()  # Compiled messages are not seen by the cycle collector.
    return found
