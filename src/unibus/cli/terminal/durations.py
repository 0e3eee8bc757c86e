"""Durations as options write them: 90, 90s, 30m, 2h, 1h30m, 7d."""

import re
from typing import Final

from unibus.errors import UsageError

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def seconds_of(option: str, text: str) -> float:
    """The duration in seconds. Raises UsageError, which names the option, if `text` is not a duration."""
    given = text.strip().lower()
    found = _PART.findall(given)
    if found and "".join(number + unit for number, unit in found) == given:
        total = sum(float(number) * _UNITS[unit] for number, unit in found)
    else:
        try:
            total = float(given)
        except ValueError:
            total = -1.0
    if not 0 < total < 9e9:
        raise UsageError(f"{option} {text!r} is not a duration", "for example 90s, 30m, 2h or 7d")
    return total
