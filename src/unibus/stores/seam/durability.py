"""Durability levels: what an acknowledged message survives."""

import enum
from typing import Final

from unibus.errors import UsageError

LEVELS: Final = "use D0 (in memory), D1 (survives the end of the process) or D2 (survives a power cut)"
"""For hints: the levels that the stores of this version have."""


class Durability(enum.IntEnum):
    """What an acknowledged message survives."""

    D0 = 0
    """In memory: lost when the process ends."""
    D1 = 1
    """Written to the operating system: survives the end of the process, also by kill -9."""
    D2 = 2
    """Synced to disk before the acknowledgement: survives a power cut."""
    D3 = 3
    """Synced in two failure domains: survives the loss of one of them."""

    @staticmethod
    def of(value: object) -> "Durability":
        """From a member, its name or its number. Raises UsageError for anything else."""
        if isinstance(value, str) and value.upper() in Durability.__members__:
            return Durability[value.upper()]
        if isinstance(value, int) and not isinstance(value, bool) and value in Durability.__members__.values():
            return Durability(value)
        raise UsageError(f"unknown durability {value!r}", LEVELS)
