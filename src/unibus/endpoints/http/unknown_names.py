"""Unknown names in BrokerProperties: accepted, ignored, and logged once.

Azure documents that unknown names are ignored, so a send with one still answers 201. But a misspelt name silently loses
what the sender meant. Names are case-sensitive, as in Azure: `messageId` is not `MessageId`, and the log line names the
similar one. The first use of each name is logged, and at most `NAMES_MAX` lines: clients choose the names.
"""

import difflib
import logging
from collections.abc import Iterable
from typing import Final

from unibus.endpoints.log_lines import log_event

log = logging.getLogger("unibus.http")

NAMES_MAX: Final = 100
_NAME_LENGTH_MAX: Final = 60


class UnknownNames:
    """The unknown names that one server has logged so far."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def report(self, name: str, known: Iterable[str], entity: str) -> None:
        """Log a name at its first use. `known` are the names that may be meant."""
        short = name[:_NAME_LENGTH_MAX]
        if short in self._reported or len(self._reported) >= NAMES_MAX:
            return
        self._reported.add(short)
        similar = _similar_name(short, known)
        hint = {"hint": f"did the sender mean {similar}? names are case-sensitive"} if similar else {}
        log_event(log, logging.WARNING, "unknown name in BrokerProperties", name=short, entity=entity, **hint)


def _similar_name(name: str, known: Iterable[str]) -> str:
    folded = {each.casefold(): each for each in known}
    found = difflib.get_close_matches(name.casefold(), folded, 1, 0.8)
    return folded[found[0]] if found else ""
