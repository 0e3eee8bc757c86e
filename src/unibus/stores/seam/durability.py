"""How much a "yes" of a store means."""

import enum

from unibus.errors import UsageError


class Durability(enum.IntEnum):
    """What an acknowledged message survives."""

    D0 = 0
    """Memory: nothing, it ends with the process."""
    D1 = 1
    """Handed to the kernel: the end of the process, kill -9 included."""
    D2 = 2
    """Synced to disk before the acknowledgement: loss of power."""
    D3 = 3
    """Synced in two failure domains: loss of one of them."""

    @staticmethod
    def of(value: object) -> "Durability":
        """From a member, its name or its number."""
        if isinstance(value, str) and value.upper() in Durability.__members__:
            return Durability[value.upper()]
        if isinstance(value, int) and not isinstance(value, bool) and value in Durability.__members__.values():
            return Durability(value)
        raise UsageError(f"unknown durability {value!r}", f"use one of {', '.join(Durability.__members__)}")
