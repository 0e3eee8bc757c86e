"""A warning for a receiver that waits on a misspelt queue: `receive("oders", timeout=5)` beside the queue `orders`.

A receive creates a missing queue, because its first message may be sent later. So a misspelt name gives no error, and
no message, ever. The bus remembers which queues its own receives created. When such a receive ends without a message
and another entity has a similar name, one WARNING names it. A queue that has delivered a message is not misspelt.
"""

from typing import Final

from unibus.near_names import near_name
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")

CREATED_MAX: Final = 1_000
"""Names that are remembered: they come from callers."""

COMPARED_MAX: Final = 1_000
"""Entities whose names are compared, so that a bus with many of them does not compute for long."""

CHECKS_MAX: Final = 3
"""How many empty receives of one queue compare names: the right queue may be created after the first of them."""


class MisspeltQueues:
    """The queues that receives of one bus created and that have delivered nothing yet."""

    def __init__(self) -> None:
        self._checks: dict[str, int] = {}  # Name -> checks that are left.

    def created(self, queue: str) -> None:
        """A receive has created the queue."""
        if len(self._checks) < CREATED_MAX:
            self._checks[queue] = CHECKS_MAX

    def is_suspect(self, queue: str, received: int) -> bool:
        """Whether to compare the name with others, after a receive that ended with so many messages."""
        left = self._checks.get(queue)
        if left is None:
            return False
        if received or left == 1:
            self._checks.pop(queue, None)
        else:
            self._checks[queue] = left - 1
        return not received

    def compare(self, queue: str, names: list[str]) -> None:
        """Log the warning if another entity has a similar name."""
        # Queues that other receives created are no suggestions: they may be misspelt as well.
        others = [name for name in names[:COMPARED_MAX] if name != queue and name not in self._checks]
        near = near_name(queue, others)
        if near:
            self._checks.pop(queue, None)  # Once for each name.
            log.warning("no message came from queue %r, which this receive created: did you mean %r?", queue, near)
