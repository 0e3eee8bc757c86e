"""The priority of a message: 0 to 255, lower is delivered first."""

from typing import Final

from mypy_extensions import i64

from unibus.errors import PriorityInvalid
from unibus.limits import PRIORITY_MAX


class Priority:
    """Named levels. Any whole number from 0 to 255 is valid."""

    CRITICAL: Final = 0
    HIGH: Final = 25
    NORMAL: Final = 50
    LOW: Final = 75
    BACKGROUND: Final = 100


def checked_priority(value: object) -> i64:
    """The value as a priority. Raises PriorityInvalid for anything but a whole number from 0 to 255."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= PRIORITY_MAX:
        number: i64 = value
        return number
    raise PriorityInvalid(
        f"priority {value!r} is not a whole number from 0 to {PRIORITY_MAX}",
        "lower is more urgent: Priority.CRITICAL is 0, NORMAL 50, BACKGROUND 100",
    )
