"""What every store offers of its history: the events after a position, and those of one message."""

from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from unibus.core.lifecycle.events import Event
from unibus.stores.seam.replay_index import ReplayIndex


class History(Protocol):
    def events_after(self, seq: int, limit: int = 1_000, kinds: Collection[str] = ()) -> tuple[list[Event], int]:
        """Rows after `seq`, of those kinds only if any are named, and the seq up to which no row can appear any more.

        Seqs may have gaps, the second value (safe_seq) may stand still, and it may be larger than the last row's.
        """

    def events_of(self, message_id: str) -> list[Event]:
        """Everything there is about one message, in all the places where it was."""

    def stored(self, entity: str, after_sequence: int, since_ns: int) -> dict[int, int]:
        """The sequences of what was stored in an entity or went through it, each with the seq of its data."""

    def replay(self, entity: str, after_sequence: int, since_ns: int) -> Iterator[tuple[int, bytes]]:
        """The same with the encoded messages, in the order of their sequences."""

    def replay_index(self, entity: str, after_sequence: int, since_ns: int) -> ReplayIndex:
        """The same for those that read page by page, and come again."""

    def cursor(self, name: str) -> int:
        """Where a named reader stands; 0 for one that is new."""

    def move_cursor(self, name: str, seq: int) -> None: ...

    def missed(self, name: str) -> int:
        """How many events were forgotten before that reader had read them."""

    def watch(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call once, from any thread, when there may be events that were not there before. Gives a way to stop
        watching. Watch first and read after that; a call may be in vain. It also comes when the store stops."""
