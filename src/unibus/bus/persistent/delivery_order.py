# mypyc: compiled
"""Which of the messages that a feed holds may be delivered now: none before one that precedes it.

    store ──claim──▶ on its way ──▶ Group.queue ──▶ slot: admits? ──yes──▶ handler
      │                  │               ▲                │no
      └── precedes? ─────┴── precedes? ──┴── held back ◀──┘

A feed claims ahead, so a message can be in the store that precedes, by (priority, sequence), one that the feed holds:
an urgent one that came later, or one that failed and went back to its place. A slot asks just before it calls the
handler. If something precedes its message, the message and all that wait behind it are held back until a claim has
brought what precedes them. Mostly nothing does, and the question costs one look into the store's memory.

Every method is called under the lock of the feed.
"""

from typing import Final, final

from unibus.bus.pubsub.group import Group
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.claiming import Claimed
from unibus.stores.seam.catalog import Catalog

AHEAD: Final = 32
"""Messages that wait in memory beyond those being handled: enough to hide the time of a claim."""

Place = tuple[int, int]

_BEFORE_ALL: Final[Place] = (-1, -1)


@final
class DeliveryOrder:
    """The order of one feed. `missing` is how many messages of the store precede the one that was held back last."""

    def __init__(self, catalog: Catalog, entity: str, group: Group) -> None:
        self.missing = 0
        self._wanted = 0  # What was missing when the claim that is on its way began.
        self._catalog = catalog
        self._entity = entity
        self._group = group  # Knows whether priorities count: slots put back what they did not handle, too.
        self._queue = group.queue
        self._held_back: list[Message] = []
        self._coming: Place | None = None  # The first message of the claim that is on its way; None: there is none.
        self._trusts_queue = False  # The last claim was in vain: one message is delivered without a look at the store.

    def admits(self, message: Message) -> bool:
        """Whether the message, just taken from the queue, may be delivered. Else it is held back, or queued again.

        The queue is asked too: what precedes the message may have arrived after it was taken.
        """
        level = self._group.level_of(message)
        sequence = message.sequence
        if self._queue.has_returned_before(level, sequence):
            self._queue.restore(message, level, sequence)
            return False
        if self._coming is not None and self._coming < (level, sequence):
            self._hold_back(message, self._coming)
            return False
        if self._trusts_queue:
            self._trusts_queue = False
            return True
        missing = self._catalog.count_before(self._entity, level, sequence, AHEAD)
        if missing == 0:
            return True  # `missing` stays: another slot may have held back messages, and be about to claim for them.
        self.missing = missing
        self._hold_back(message, (level, sequence))
        return False

    def _hold_back(self, message: Message, first: Place) -> None:
        """This message, and those in the queue that do not precede `first`: no slot has to take and return each."""
        self._held_back.append(message)
        for waiting in self._queue.drain():
            self._put(waiting, first)

    def _put(self, message: Message, first: Place | None) -> None:
        place = self._place(message)
        if first is None or place < first:
            self._queue.restore(message, place[0], place[1])
        else:
            self._held_back.append(message)

    def _place(self, message: Message) -> Place:
        return (self._group.level_of(message), message.sequence)

    # The claims of the feed, at most one at a time

    def begin_claim(self) -> None:
        """From now on the store may give out messages of which only the answer of the claim tells."""
        self._coming = _BEFORE_ALL
        self._wanted = self.missing

    def claim_decided(self, claimed: list[Claimed]) -> None:
        """It is known what the claim brings, and that is being written: what precedes it need not wait for that."""
        if claimed:
            by_priority = claimed[0].entry.entity.settings.by_priority
            if self._group.by_priority != by_priority:
                self._reorder(by_priority)
            self._coming = min((each.priority if by_priority else 0, each.sequence) for each in claimed)
        else:
            self._coming = None
        self._put_back()

    def _reorder(self, by_priority: bool) -> None:
        """The setting of the subscription is another than before: what is queued gets its place by that."""
        waiting = self._queue.drain()
        self._group.by_priority = by_priority
        for message in waiting:
            self._put(message, None)

    def end_claim(self, messages: list[Message]) -> None:
        """It brought these. One in vain, because it failed or another receiver was quicker, must not be made again and
        again: the next message is delivered whatever the store has, so that no state of the store stops the group."""
        # Not for what was missed only after the claim had begun: the next one brings that.
        self._trusts_queue = self._wanted > 0 and not messages
        self.missing = 0
        self._coming = None
        self._held_back += messages
        self._put_back()

    def _put_back(self) -> None:
        waiting, self._held_back = self._held_back, []
        for message in waiting:
            self._put(message, self._coming)

    def take_all(self) -> list[Message]:
        """Remove everything that waits for a slot."""
        held_back, self._held_back = self._held_back, []
        return self._queue.drain() + held_back
