# mypyc: compiled
"""The message ids that an idempotent group has processed, and that its claimed messages do not show yet.

A claim shows for each message whether its id was processed when the store decided the claim. A message that was claimed
before the completion of another one with the same id therefore shows too little. So the pump remembers an id from the
completion on, and forgets it with the second claim after that, unless a message with the id is still held: every later
claim shows it.

    completed ──▶ since the last claim ──claim arrives──▶ before it ──claim arrives──▶ forgotten, if none is held

The caller of every method holds the lock of the pump.
"""

from collections.abc import Iterable
from typing import final

from unibus.core.lifecycle.claiming import Claimed


@final
class ProcessedIds:
    def __init__(self) -> None:
        self._since: set[str] = set()
        self._before: set[str] = set()

    def add(self, message_id: str) -> None:
        """When its completion is given to the store, and again when the store has decided it."""
        self._since.add(message_id)

    def discard(self, message_id: str) -> None:
        """The store has refused the completion: the message is redelivered, and must be handled then."""
        self._since.discard(message_id)
        self._before.discard(message_id)

    def has(self, message_id: str) -> bool:
        return message_id in self._since or message_id in self._before

    def claim_arrived(self, held: Iterable[Claimed]) -> None:
        if self._since or self._before:
            self._before = (self._before & {each.who.message_id for each in held}) | self._since
            self._since = set()
