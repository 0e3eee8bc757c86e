# mypyc: compiled
"""The state of a store that is being opened: empty before recovery, and without the locks of the process before."""

from uuid import uuid4

from unibus.core.lifecycle.claiming import end_locks_of_processes, limit_durations
from unibus.core.lifecycle.state.state import StoreState
from unibus.counting import counted
from unibus.display import without_secrets
from unibus.safe_log import SafeLogger
from unibus.stores.seam.journal import Journal

log = SafeLogger("unibus")


def empty_state(journal: Journal, memory_budget: int, most: dict[int, int] | None) -> StoreState:
    state = StoreState(memory_budget)
    state.saves = journal.snapshots
    state.new_id = uuid4
    state.most.update(most or {})
    return state


def end_former_locks(url: str, state: StoreState, now_ns: int) -> None:
    """End or limit the locks that the process before has left, and report the messages that its handlers had."""
    limit_durations(state, now_ns)
    redelivered, dead_lettered = end_locks_of_processes(state, now_ns)
    if redelivered or dead_lettered:
        log.warning(
            "%s: the last process ended while its handlers had %s: redelivered %d, dead-lettered %d (no delivery left)",
            without_secrets(url),
            counted(redelivered + dead_lettered, "message"),
            redelivered,
            dead_lettered,
        )
