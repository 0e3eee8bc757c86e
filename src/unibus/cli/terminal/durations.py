"""Durations as options write them: 90, 90s, 1.5s, 500ms, 30m, 2h, 1h30m, 7d, 2w, or ISO 8601: PT30S, P1DT12H.

A plain number is seconds, as in the Python API. Every option that takes a duration uses `seconds_of`, and METAVAR in
its help; a test compares them.
"""

import re
from typing import Final

from unibus.errors import ConfigInvalid, UsageError

METAVAR: Final = "DURATION"
EXAMPLES: Final = "90s, 30m, 2h or 7d"

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_SECONDS_MAX: Final = 9e9


def seconds_of(option: str, text: str, zero: bool = False) -> float:
    """The duration in seconds. Raises UsageError, which names the option, if `text` is not a duration.

    `zero`: 0 is a valid duration of this option.
    """
    total = _seconds(text.strip().lower())
    if total is None or not (0 < total < _SECONDS_MAX or (zero and total == 0)):
        raise UsageError(f"{option} {text!r} is not a duration", f"for example {EXAMPLES}")
    return total


def _seconds(given: str) -> float | None:
    if not given.isascii():
        return None  # `float` also reads the digits of other scripts.
    found = _PART.findall(given)
    if found and "".join(number + unit for number, unit in found) == given:
        return float(sum(float(number) * _UNITS[unit] for number, unit in found))
    if given.startswith("p"):
        from unibus.bus.entities.iso_duration import duration_s

        try:
            return duration_s(given)
        except ConfigInvalid:
            return None
    return float(given) if _NUMBER.fullmatch(given) else None
