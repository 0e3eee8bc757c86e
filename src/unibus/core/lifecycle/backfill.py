# mypyc: compiled
"""The messages that an entity had before, as far as history still has them: for a replay, and for the backfill of a new
subscription that starts in the past.

Messages that an operator discarded or pruned are excluded. A message that was moved or forwarded into an entity has its
data in the record of another entity, and is not found here.
"""

from typing import Final, final

from mypy_extensions import i64

from unibus.core.codec.codec import decode
from unibus.core.lifecycle.routed_message import RoutedMessage
from unibus.core.lifecycle.sending import arrive_by_rules
from unibus.core.lifecycle.state.changes import (
    Activated,
    Cancelled,
    Change,
    Copied,
    Expired,
    Forgotten,
    Passed,
    Pruned,
    Purged,
    Routed,
    Sent,
)
from unibus.core.lifecycle.state.entity import Entity
from unibus.core.lifecycle.state.state import StoreState

_ENDED: Final = (Cancelled, Purged, Forgotten)


@final
class EntityHistory:
    """Reads every change of the log, in order. Then `found` has, by sequence, the seq of the change with the data."""

    def __init__(self, entity: int, after_sequence: int, since_ns: int) -> None:
        self.found: dict[int, int] = {}
        self._entity: i64 = entity
        self._after: i64 = after_sequence
        self._since_ns: i64 = since_ns
        self._scheduled: dict[int, int] = {}

    def add_change(self, seq: int, change: Change) -> None:
        if change.entity != self._entity:
            return
        sequence = change.sequence
        if isinstance(change, Sent) and change.visible_ns:
            self._scheduled[sequence] = seq
        elif isinstance(change, (Sent, Passed)):
            if change.data:
                self._add(sequence, seq, change.at_ns)
        elif isinstance(change, Copied):
            if change.back:
                self._add(sequence, seq - change.back, change.at_ns)
        elif isinstance(change, (Activated, Routed)):
            self._add_activated(change)
        elif isinstance(change, Pruned):
            # An operator pruned history up to this sequence: a replay must not show it again.
            for older in [each for each in self.found if each <= sequence]:
                del self.found[older]
        elif isinstance(change, _ENDED):
            self._scheduled.pop(sequence, None)
            self.found.pop(sequence, None)

    def _add_activated(self, change: Activated | Routed) -> None:
        """A scheduled message counts from its activation, and under the sequence that it got then."""
        seq = self._scheduled.pop(change.sequence, 0)
        if seq:
            self._add(change.new_sequence if isinstance(change, Activated) else change.sequence, seq, change.at_ns)

    def _add(self, sequence: int, seq: int, at_ns: int) -> None:
        if sequence > self._after and at_ns >= self._since_ns:
            self.found[sequence] = seq


@final
class Backfill:
    """The messages for a subscription that starts in the past. Pass it the log as to EntityHistory, then call `hold`
    before the subscription is declared, and `copy_to` afterwards.

    `topic` is the number of the topic, `seq` the last change that was added.
    """

    def __init__(self, topic: int, after_sequence: int, since_ns: int) -> None:
        self.topic: Final[int] = topic
        self.seq: i64 = 0
        self._held: set[int] = set()
        self._past = EntityHistory(topic, after_sequence, since_ns)
        self._changes: dict[int, Sent | Passed] = {}

    def hold(self, topic: Entity) -> None:
        """Exclude the messages that the topic still stores: its first subscription gets those anyway, and the scheduled
        ones when they are due."""
        # Before the subscription exists: declaring it routes what the topic keeps (`route_kept`).
        self._held = set(topic.entries)

    def add_change(self, seq: int, change: Change) -> None:
        self.seq = seq
        self._past.add_change(seq, change)
        if change.entity != self.topic:
            return
        if isinstance(change, (Sent, Passed)):
            self._changes[seq] = change
        elif isinstance(change, Expired):
            self._past.found.pop(change.sequence, None)

    def copy_to(self, state: StoreState, subscription: Entity, now_ns: i64) -> int:
        """Route the messages to the subscription; returns the number of copies. Those that expired meanwhile are not
        copied."""
        copies = 0
        for sequence, seq in self._past.found.items():
            change = self._changes.get(seq)
            if change is None or sequence in self._held:
                continue
            properties = decode(change.data).properties
            ttl_ns = 0 if properties is None else properties.ttl_ns
            # From when it was published: a copy must not live longer than the original would have.
            left_ns = change.at_ns + ttl_ns - now_ns if ttl_ns else 0
            if ttl_ns and left_ns <= 0:
                continue  # Expired. A ttl of 0 would mean that it never expires.
            routed = RoutedMessage(change.who, change.priority, left_ns)
            routed.data = change.data
            routed.dedup_key = None if properties is None else properties.dedup_key
            copies += arrive_by_rules(state, subscription, routed, now_ns)
        return copies
