"""Warnings for misspelt queues: `receive("oders", timeout=5)` or `send("oders", 1)` beside the queue `orders`.

A receive creates a missing queue, because its first message may be sent later. So a misspelt name gives no error, and
no message, ever. The bus remembers which queues its own receives created. When such a receive ends without a message
and another entity has a similar name, one WARNING names it. A queue that has delivered a message is not misspelt.

A send creates a missing queue, too. Its message is stored, so only a name that is nearly that of another entity is
reported: one letter more, less or exchanged. Names that differ in their digits (`customer-1`) are a series. Only the
first names that a bus sends to are compared: a program with a queue for each customer creates thousands.
"""

import difflib
import re
from typing import Final

from unibus.near_names import near_name
from unibus.safe_log import SafeLogger
from unibus.stores.seam.info_of import EntityInfo
from unibus.stores.seam.pending import Pending

log = SafeLogger("unibus")

CREATED_MAX: Final = 1_000
"""Names that are remembered: they come from callers."""

COMPARED_MAX: Final = 1_000
"""Entities whose names are compared, so that a bus with many of them does not compute for long."""

CHECKS_MAX: Final = 3
"""How many empty receives of one queue compare names: the right queue may be created after the first of them."""

SENDS_COMPARED_MAX: Final = 20
"""New names of one bus whose first send is compared with the names of the store."""

_SAME_RATIO: Final = 0.9
_DIGITS: Final = re.compile(r"\d+")


class MisspeltQueues:
    """The queues that receives of one bus created and that have delivered nothing yet."""

    def __init__(self) -> None:
        self._checks: dict[str, int] = {}  # Name -> checks that are left.
        self._sends_left = SENDS_COMPARED_MAX

    def may_compare_sends(self) -> bool:
        return self._sends_left > 0

    def compare_send(self, queue: str, entities: Pending[list[EntityInfo]]) -> None:
        """Log a warning if the queue, which a send is going to create, has nearly the name of another entity."""
        self._sends_left -= 1
        entities.on_done(lambda answer: self._compare_send(queue, answer))

    def _compare_send(self, queue: str, answer: Pending[list[EntityInfo]]) -> None:
        if answer.error is not None:
            return  # The send itself reports that.
        for info in answer.value[:COMPARED_MAX]:
            if info.name not in self._checks and _is_nearly(queue, info.name):
                log.warning("queue %r is new, this send created it: did you mean %r?", queue, info.name)
                return

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


def _is_nearly(name: str, other: str) -> bool:
    """Whether the names differ by a letter or two, and not only in their digits or in case."""
    folded, known = name.casefold(), other.casefold()
    if folded == known or _DIGITS.sub("0", folded) == _DIGITS.sub("0", known):
        return False
    return sorted(folded) == sorted(known) or difflib.SequenceMatcher(None, folded, known).ratio() >= _SAME_RATIO
