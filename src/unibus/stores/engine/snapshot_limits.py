"""When a store takes a snapshot: after a number of changes, bytes or seconds, and when it is closed.

History before the last snapshot can be pruned; recovery needs the history after it. So history keeps to its limits only
if snapshots are frequent enough: one is due after a fraction of each limit. A store without changes takes none.
"""

from dataclasses import dataclass, field
from typing import Final

from unibus.limits import (
    SNAPSHOT_AGE_S_MAX,
    SNAPSHOT_AGE_S_MIN,
    SNAPSHOT_AT_CLOSE_BYTES_MAX,
    SNAPSHOT_BYTES_MAX,
    SNAPSHOT_BYTES_MIN,
)

AT_CLOSE = True  # Not final: tests set it to keep messages in the log only.
_PARTS: Final = 4
"""A snapshot is due after this fraction of a limit: until the next trim, history exceeds it by one part at most."""


@dataclass(frozen=True)
class SnapshotLimits:
    """`weight` limits the changes since the last snapshot, as StoreState.weight counts; `age_ns` that of the oldest.

    `rewrites`: a snapshot writes all messages of an entity again, not only those that changed. Then one is due when the
    log is as large as all messages that exist, so that each message is written a few times only.
    """

    weight: int = SNAPSHOT_BYTES_MAX
    age_ns: int = round(SNAPSHOT_AGE_S_MAX * 1e9)
    rewrites: bool = False
    at_close: bool = field(default_factory=lambda: AT_CLOSE)
    at_close_bytes_max: int = SNAPSHOT_AT_CLOSE_BYTES_MAX  # Only if a snapshot rewrites.


def limits_for(history_bytes: int, history_age_s: float, bytes_max: int, rewrites: bool) -> SnapshotLimits:
    weight = min(max(history_bytes // _PARTS, SNAPSHOT_BYTES_MIN), bytes_max)
    age_s = min(max(history_age_s / _PARTS, SNAPSHOT_AGE_S_MIN), SNAPSHOT_AGE_S_MAX)
    return SnapshotLimits(weight, round(age_s * 1e9), rewrites)
