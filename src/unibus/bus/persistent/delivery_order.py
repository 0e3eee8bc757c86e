# mypyc: compiled
"""Delivery order of one pump: no message is delivered before one that precedes it by (priority, sequence).

    store ──claim──▶ being claimed ──▶ Group.queue ──▶ slot: admits? ──yes──▶ handler
      │                  │                 ▲                │no
      └── precedes? ─────┴── precedes? ────┴── held back ◀──┘

A pump claims ahead (prefetch). So the store can have a message that precedes one in the pump's memory: an urgent one
that was published later, or one that failed and is ready again at its old position. A slot asks `admits` just before
it calls the handler. If a message precedes its own, it holds back its message and all later ones until a claim has
brought the preceding one. Usually none precedes, and the check costs one lookup in the memory of the store.

    claim:  begin_claim ──▶ claim_decided (what it brings is known, and is being written) ──▶ end_claim (durable)

The order is best effort against other receivers of the same subscription, and it never stops the group: after a claim
that brought nothing, the next message is delivered without asking the store (`_trusts_queue`).

The caller of every method holds the lock of the pump.
"""

from typing import Final, final

from unibus.bus.pubsub.group import Group
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.claiming import Claimed
from unibus.stores.seam.catalog import Catalog

AHEAD: Final = 32
"""Prefetch: messages that wait in memory beyond those in-flight. Enough to hide the time that a claim takes."""

Place = tuple[int, int]

_BEFORE_ALL: Final[Place] = (-1, -1)


@final
class DeliveryOrder:
    """The order of one pump. `missing`: how many messages of the store precede the one that was held back last."""

    def __init__(self, catalog: Catalog, entity: str, group: Group) -> None:
        self.missing = 0
        self._wanted = 0  # The value of `missing` when the open claim began.
        self._catalog = catalog
        self._entity = entity
        self._group = group  # Its `by_priority` decides the order; slots that requeue a message use it, too.
        self._queue = group.queue
        self._held_back: list[Message] = []
        self._coming: Place | None = None  # Position of the first message of the open claim; None: no claim is open.
        self._trusts_queue = False  # The last claim brought nothing: deliver one message without asking the store.

    def admits(self, message: Message) -> bool:
        """Whether the message, which a slot has just popped, may be delivered. Else holds it back, or requeues it.

        The queue is checked, too: a preceding message may have been queued after the pop.
        """
        # Three places can have a preceding message, checked in the order in which messages move backwards from here:
        # the group's queue, the open claim, the store.
        level = self._group.level_of(message)
        sequence = message.sequence
        if self._queue.has_returned_before(level, sequence):
            self._queue.restore(message, level, sequence)
            return False
        if self._coming is not None and self._coming < (level, sequence):
            self._hold_back(message, self._coming)
            return False
        # For one message only: the next one asks the store again.
        if self._trusts_queue:
            self._trusts_queue = False
            return True
        missing = self._catalog.count_before(self._entity, level, sequence, AHEAD)
        if missing == 0:
            return True  # Keep `missing`: another slot may have held back messages, and be about to claim for them.
        self.missing = missing
        self._hold_back(message, (level, sequence))
        return False

    def _hold_back(self, message: Message, first: Place) -> None:
        """Hold back this message and all queued ones that do not precede `first`, so that no slot pops each in vain."""
        # The locks are kept and renewed meanwhile. Releasing them would cost two writes for each message.
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

    # The claims of the pump, at most one at a time

    def begin_claim(self) -> None:
        """A claim begins. Until it is decided any message may precede: `count_before` does not see claimed ones."""
        self._coming = _BEFORE_ALL
        self._wanted = self.missing

    def claim_decided(self, claimed: list[Claimed]) -> None:
        """The claimed messages are known and being written: messages that precede them need not wait for the commit."""
        if claimed:
            # The setting may have been changed in the store since the last claim. Both sides must compare by the same
            # rule, or a message could be held back for one that never precedes it.
            by_priority = claimed[0].by_priority
            if self._group.by_priority != by_priority:
                self._reorder(by_priority)
            self._coming = min((each.priority if by_priority else 0, each.sequence) for each in claimed)
        else:
            self._coming = None
        self._put_back()

    def _reorder(self, by_priority: bool) -> None:
        """The subscription's order was changed: queue the waiting messages by the new one."""
        waiting = self._queue.drain()
        self._group.by_priority = by_priority
        for message in waiting:
            self._put(message, None)

    def end_claim(self, messages: list[Message]) -> None:
        """The claim is durable and brought these messages.

        A claim that brought nothing (it failed, or another receiver was faster) must not be repeated for ever: the next
        message is delivered without asking the store, so that no state of the store can stop the group.
        """
        # Only if messages were missing when the claim began; what was missed later comes with the next claim.
        self._trusts_queue = self._wanted > 0 and not messages
        self.missing = 0
        self._coming = None
        self._held_back += messages
        self._put_back()

    def _put_back(self) -> None:
        waiting, self._held_back = self._held_back, []
        for message in waiting:
            self._put(message, self._coming)

    def starts_max(self, slots: int, held: int) -> int:
        """How many messages that a claim brings now would be handled at once. The pump has `held`, those that wait
        included."""
        waiting = self._queue.size + len(self._held_back)
        # Without the messages of cancelled handlers that still run: those occupy none of the slots.
        idle = slots - max(0, held - waiting - self._group.leaving)
        # A message that precedes those that wait is handled before them; any other one after them.
        return max(0, idle if self.missing else idle - waiting)

    def take_all(self) -> list[Message]:
        """Remove and return all messages that wait for a slot."""
        held_back, self._held_back = self._held_back, []
        return self._queue.drain() + held_back
