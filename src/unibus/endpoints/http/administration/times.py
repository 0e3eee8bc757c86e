"""Instants as the documents write them."""

from datetime import UTC, datetime
from typing import Final

NEVER: Final = "0001-01-01T00:00:00Z"
"""What Azure answers where there is no such time: clients expect one."""


def time_text(ns: int) -> str:
    """With the seven decimals of .NET."""
    if not ns:
        return NEVER
    seconds, rest = divmod(ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 100:07}Z"
