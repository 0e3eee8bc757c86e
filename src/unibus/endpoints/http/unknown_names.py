"""Names in BrokerProperties that neither Azure nor this server knows: accepted, ignored, and reported once in the log.

Azure documents that such names are ignored, so a send with one is still 201. But a misspelt name loses what the sender
meant, without any sign of it. Names have case for Azure: `messageId` is not `MessageId`, and the line says which name
may be meant. The log gets the first use of each name, and at most `NAMES_MAX` lines: clients choose the names.
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
    """What one server has reported so far."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def report(self, name: str, known: Iterable[str], entity: str) -> None:
        """One line for a name that has none yet. `known` are the names that may be meant."""
        short = name[:_NAME_LENGTH_MAX]
        if short in self._reported or len(self._reported) >= NAMES_MAX:
            return
        self._reported.add(short)
        meant = _meant(short, known)
        hint = {"hint": f"{meant} may be meant; names have case"} if meant else {}
        log_event(log, logging.WARNING, "unknown name in BrokerProperties", name=short, entity=entity, **hint)


def _meant(name: str, known: Iterable[str]) -> str:
    folded = {each.casefold(): each for each in known}
    found = difflib.get_close_matches(name.casefold(), folded, 1, 0.8)
    return folded[found[0]] if found else ""
