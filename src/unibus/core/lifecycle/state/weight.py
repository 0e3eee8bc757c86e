# mypyc: compiled
"""The size of changes in memory, roughly: what the limit of a history in memory counts.

Everything that a user can make large must be counted: if a change counts for less than it takes, the history grows
beyond its limit. Ids, keys and reasons are mostly a few characters, but have no limit.
"""

from typing import Final

from unibus.core.lifecycle.state.changes import (
    Applied,
    Change,
    Completed,
    Copied,
    DeadLettered,
    Delivered,
    Duplicated,
    MessageRef,
    Passed,
    Processed,
    Purged,
    Returned,
    SessionTaken,
)

CHANGE_WEIGHT: Final = 320
"""The memory of a change without its data: the object, its numbers, a lock token, the id of a message."""


def weight_of(value: object) -> int:
    """The size of headers or settings: their text and bytes, and a constant for everything else."""
    if isinstance(value, (str, bytes)):
        return len(value) + 50
    if isinstance(value, dict):
        return 200 + sum([weight_of(key) + weight_of(each) for key, each in value.items()])
    return 60 + sum([weight_of(each) for each in value]) if isinstance(value, list) else 30


def weight_of_ids(who: MessageRef, key: str | None) -> int:
    """The size of the ids that a sender chose, and of its dedup key."""
    found = 0 if key is None else len(key)
    if who.correlation_id is not None:
        found += len(who.correlation_id)
    if who.trace_id is not None:
        found += len(who.trace_id)
    return found


def weight_of_texts(change: Change) -> int:
    """The size of the ids, keys, names and reasons in a change. `Sent` is counted where it is recorded."""
    if isinstance(change, Copied):
        return 0  # Its ids are those of the message that it copies.
    if isinstance(change, (Passed, Duplicated)):
        return weight_of_ids(change.who, change.dedup_key)
    if isinstance(change, (Returned, Purged)):
        return len(change.reason)
    if isinstance(change, DeadLettered):
        return len(change.reason) + len(change.signature) + len(change.consumer)
    if isinstance(change, (Delivered, Completed, SessionTaken)):
        return len(change.consumer)
    if isinstance(change, Applied):
        return len(change.batch_id) + weight_of(change.results)
    return len(change.key) if isinstance(change, Processed) else 0
