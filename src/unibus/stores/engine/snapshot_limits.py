"""When a store takes a snapshot: after so many changes, bytes or seconds, and when it is closed.

History before the last snapshot can be trimmed, history after it cannot. So the limits of history hold only as far as
snapshots follow: one is due after a part of what may be kept. A store in which nothing has changed takes none.
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

AT_CLOSE = True  # Not final, so that tests can have a store whose messages are in the log only.
_PARTS: Final = 4
"""Into so many parts a limit of history is divided: it is exceeded by one of them at most, until the next trim."""


@dataclass(frozen=True)
class SnapshotLimits:
    """`weight` is that of the changes since the last snapshot, as `Book.weight` counts it; `age_ns` that of the oldest.

    `rewrites`: a snapshot writes all messages of an entity again, not only those that changed. Then there is one when
    the log has become as large as the messages that exist, so that each of them is written a few times only.
    """

    weight: int = SNAPSHOT_BYTES_MAX
    age_ns: int = round(SNAPSHOT_AGE_S_MAX * 1e9)
    rewrites: bool = False
    at_close: bool = field(default_factory=lambda: AT_CLOSE)
    at_close_bytes_max: int = SNAPSHOT_AT_CLOSE_BYTES_MAX  # Where a snapshot rewrites.


def limits_for(history_bytes: int, history_age_s: float, bytes_max: int, rewrites: bool) -> SnapshotLimits:
    weight = min(max(history_bytes // _PARTS, SNAPSHOT_BYTES_MIN), bytes_max)
    age_s = min(max(history_age_s / _PARTS, SNAPSHOT_AGE_S_MIN), SNAPSHOT_AGE_S_MAX)
    return SnapshotLimits(weight, round(age_s * 1e9), rewrites)
