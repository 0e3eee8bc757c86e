"""The history of a store as readers see it: events after a position, events of one message, replay, cursors.

EventHistory is what every reader has; a StoreView (store_view.py) has it too. History adds what only an open store can
do: named readers, and a call when there are new events.
"""

from collections.abc import Callable, Collection
from typing import Protocol

from unibus.core.lifecycle.events import Event
from unibus.stores.seam.replay_index import ReplayIndex


class EventHistory(Protocol):
    def events_after(self, seq: int, limit: int = 1_000, kinds: Collection[str] = ()) -> tuple[list[Event], int]:
        """Events after `seq`, only of `kinds` if any are given, and the safe_seq: no new event can appear up to it.

        Seqs may have gaps. The safe_seq may stay the same between calls, and may be larger than the last event's seq.
        """

    def events_of(self, message_id: str) -> list[Event]:
        """All events of one message, in every entity that it was in."""

    def replay_index(self, entity: str, after_sequence: int, since_ns: int) -> ReplayIndex:
        """The messages that an entity stored or routed after a sequence, and not before an instant."""


class History(EventHistory, Protocol):
    def cursor(self, name: str) -> int:
        """The position of a named reader; 0 for a new one."""

    def move_cursor(self, name: str, seq: int) -> None: ...

    def missed(self, name: str) -> int:
        """How many events after the cursor of that reader were pruned. A new reader, and one that has moved on, has
        missed none."""

    def watch(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call `call` once, from any thread, when there may be new events, or when the store stops. Returns a function
        that stops watching. Watch first and read afterwards, so that no event is missed in between; a call may find
        nothing new."""
