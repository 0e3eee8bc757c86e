"""Detects a log that lost its end: one that was cut between two groups looks like one that ends there.

So a journal records the last change of its log at the two moments when it syncs anyway: when it is opened, and when it
is closed in order. The number is a lower bound that stays true, because a log only grows at its end:

    log   1 ─────────────── 40 ──────── 55        opened at 40, then closed in order at 55
    reached                                55      a log that ends before that has lost changes

It is written after the changes that it counts are on disk, never before: a power cut must not make an intact log look
damaged. A crash leaves the number of the last opening, so a cut in what came after it is not noticed. An older version
of unibus does not update the number; then it is too small, which is harmless.
"""

from typing import Final

from unibus.counting import counted
from unibus.errors import DAMAGED_HINT, StoreDamaged

REACHED: Final = "reached"
"""The name of the number in the file."""

OLDEST: Final = "oldest"
"""The first change of a SQLite log; if the whole log was trimmed, the first one that comes next."""

NOT_LOADED: Final = -1
"""The number of a journal that is not loaded yet: it does not know the end of its log, so it must not record one."""

NOT_IN_ORDER: Final = "%s was closed, but the end of its log could not be recorded: %s"
"""A warning and not an error: everything that was acknowledged is as durable as before."""


def check_end(path: str, last: int, reached: int, overlap: int) -> None:
    """StoreDamaged if the log is too short. `last` is its last change, `overlap` the last one in the snapshot."""
    if last < reached:
        what = f"the log ends with change {last}, but the store was opened or closed at change {reached}"
        raise _cut(path, what, reached - last)
    # Slices are written in the same transaction as the group, or after the group is synced. So a log that ends before
    # `overlap` cannot be the result of a crash.
    if last < overlap:
        what = f"the log ends with change {last}, but the snapshot has changes up to {overlap}"
        raise _cut(path, what, overlap - last)


def _cut(path: str, what: str, missing: int) -> StoreDamaged:
    changes = counted(missing, "change is", "changes are")
    return StoreDamaged(f"{path} is damaged: {what}: {changes} missing", DAMAGED_HINT)
