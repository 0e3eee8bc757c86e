"""Whether a log lost its end. By itself a log that was cut between two groups looks like one that ends there.

So a journal writes down which change it has reached, at two moments at which it syncs anyway: when it was opened, and
when it was closed in order. The number is a lower bound that stays true, because a log only grows at its end:

    log   1 ─────────────── 40 ──────── 55        opened at 40, then closed in order at 55
    reached                                55      a log that ends before that has lost changes

It is written after the changes that it counts are on disk, never before: a loss of power must not make a whole log
look damaged. A crash leaves the number of the last opening, so what came after that may be cut unnoticed. An older
version leaves a number that is too small, which is harmless.
"""

from typing import Final

from unibus.counting import counted
from unibus.errors import DAMAGED_HINT, StoreDamaged

REACHED: Final = "reached"
"""What the number is called in the file."""

OLDEST: Final = "oldest"
"""The first change that a SQLite log has, or would have if all of it was trimmed."""

NOT_LOADED: Final = -1
"""The number of a journal that was not read yet: it may not write one."""

NOT_IN_ORDER: Final = "%s was closed, and how far its log reaches could not be written: %s"
"""A warning and no error: everything that was answered is as durable as it was before."""


def check_end(path: str, last: int, reached: int, overlap: int) -> None:
    """`last` is where the log ends; `overlap` the last change that the snapshot has something of. StoreDamaged."""
    if last < reached:
        what = f"the log ends with change {last}, and the store was opened or closed with change {reached}"
        raise _cut(path, what, reached - last)
    if last < overlap:
        what = f"the log ends with change {last}, and the snapshot has changes up to {overlap}"
        raise _cut(path, what, overlap - last)


def _cut(path: str, what: str, missing: int) -> StoreDamaged:
    changes = counted(missing, "change is", "changes are")
    return StoreDamaged(f"{path} is damaged: {what}: {changes} missing", DAMAGED_HINT)
