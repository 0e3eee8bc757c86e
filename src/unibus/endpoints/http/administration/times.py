"""Instants in the format of Atom documents."""

from datetime import UTC, datetime
from typing import Final

NEVER: Final = "0001-01-01T00:00:00Z"
"""Azure's value for a missing time: clients require the element."""


def time_text(ns: int) -> str:
    """The instant with seven decimals, as .NET writes it."""
    if not ns:
        return NEVER
    seconds, rest = divmod(ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 100:07}Z"
