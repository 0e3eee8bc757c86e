"""Looking at a store without owning it: what it holds, and its history, also while another process works with it.

An embedded store has one owner. Whoever only looks needs no ownership, must not keep the owner from his work, and must
not be in the way of a program that wants to become the owner at this moment. So a reader writes nothing, takes no lock
that lasts, and sees the store as it was written at the moment of each look: what an owner has decided and not written
yet is not there, and what was written may not have been synced.

stores/reading.py opens a reader of a store that can be read from outside. The others are read through the store itself.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol

from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.stores.seam.history import History
from unibus.stores.seam.store import EntityInfo, Store

CAME: Final = frozenset({"sent", "published", "copied", "activated"})
WENT: Final = frozenset({"completed"})
"""Kinds of events that count as a message coming to an entity, and as one that was dealt with."""

PAGE: Final = 1_000
PAGE_CHANGES: Final = 20_000
PAGE_BYTES: Final = 16_000_000
"""What a reader of all history takes at once."""


@dataclass
class Flow:
    """Messages that came to an entity, and that were completed there, since its reader began to count."""

    came: int = 0
    went: int = 0


class StoreReader(Protocol):
    @property
    def counting_since(self) -> int:
        """The seq from which on `flows` counts. Another one than before: it has begun anew."""

    def moment(self) -> AbstractContextManager[None]:
        """All that is read inside of the block is of one moment. Not for long: the owner's log grows meanwhile."""

    def entities(self) -> list[EntityInfo]:
        """What there is now. What is due and not done, because nobody owns the store, counts as done."""

    def flows(self) -> dict[str, Flow]:
        """By the name of the entity, as of the last `entities`."""

    def find(self, entity: str, sequence: int) -> StoredMessage | None:
        """One message, as of the last `entities`."""

    def held(self) -> list[StoredMessage]:
        """All messages, by entity and then by sequence."""

    def data_of(self, entries: Sequence[StoredMessage]) -> dict[StoredMessage, bytes]:
        """The encoded messages, but for those that are gone by now: none is, in the same `moment`."""

    def session_states(self, entity: str) -> dict[str, bytes]:
        """By session, as of the last `entities`."""

    def stored(self, entity: str, after_sequence: int, since_ns: int) -> dict[int, int]:
        """As History does, and so the three that follow."""

    def replay(self, entity: str, after_sequence: int, since_ns: int) -> Iterator[tuple[int, bytes]]: ...

    def events_after(self, seq: int, limit: int = PAGE, kinds: Collection[str] = ()) -> tuple[list[Event], int]: ...

    def events_of(self, message_id: str) -> list[Event]: ...

    def last_events(self, count: int, wanted: Callable[[Event], bool]) -> list[Event]:
        """The newest ones that are wanted, in the order in which they happened."""

    def seq_before(self, instant_ns: int) -> int:
        """A seq with nothing after that instant up to it: where to begin for those that happened since."""

    def last_seq(self) -> int: ...

    def close(self) -> None: ...


class HistoryReader(Protocol):
    """What whoever follows all of history needs, beside the owner: changes as they are, many at a time.

    A read takes no longer than copying what it reads: the owner's log cannot shrink while somebody reads in it.
    """

    @property
    def domain(self) -> str: ...

    def identity(self) -> object:
        """Which file it is. Another one than before: it was replaced."""

    def bounds(self) -> tuple[int, int]:
        """The first and the last seq that can be read; (0, 0) where nothing ever happened, (n + 1, n) where all of it
        was forgotten."""

    def groups_after(self, seq: int, changes_max: int = PAGE_CHANGES) -> list[tuple[int, list[Change]]]:
        """Changes after `seq` as they were written together: the seq of the first, and all of them.

        The first group begins after `seq + 1` where history was forgotten. There may be a few more than `changes_max`.
        """

    def names_of(self, entities: Iterable[int]) -> dict[int, str]:
        """The names of entities by number, deleted ones too. There may be more than asked for."""

    def settle(self) -> None:
        """See to it that a loss of power cannot undo what was read so far."""

    def seq_before(self, instant_ns: int) -> int:
        """As StoreReader has it."""

    def cursors(self) -> dict[str, int]:
        """Where named readers stand, as the owner sees it."""

    def show_cursor(self, name: str, seq: int) -> None:
        """Let the owner see where this reader stands. It is told beside the store: a reader writes nothing into it."""

    def close(self) -> None: ...


def count_flows(flows: dict[str, Flow], events: list[Event]) -> None:
    for event in events:
        flow = flows.setdefault(event.channel, Flow())
        if event.kind in WENT:
            flow.went += 1
        elif event.kind != "activated" or (event.attrs or {}).get("new_sequence") != str(event.sequence):
            flow.came += 1  # One whose return was delayed has been there all the time.


def last_events(
    history: History,
    oldest: int,
    last: int,
    count: int,
    wanted: Callable[[Event], bool],
    goes_on: Callable[[], bool] = lambda: True,
) -> tuple[list[Event], int]:
    """The newest events from `oldest` to `last` that are wanted, in order, and the first seq that was looked at.

    Read backwards, window by window, so that the end of a long history costs no more than that of a short one.
    `goes_on` is asked before each window after the first.
    """
    found: list[list[Event]] = []
    missing, end = count, last
    while missing > 0 and end >= oldest and (not found or goes_on()):
        begin = max(oldest - 1, end - PAGE)
        events, _ = history.events_after(begin, end - begin)
        # Where seqs have gaps there are events beyond the window, which were looked at before.
        page = [event for event in events if event.seq <= end and wanted(event)][-missing:]
        found.append(page)
        missing -= len(page)
        end = begin
    return [event for page in reversed(found) for event in page], end + 1


def seq_before(history: History, oldest: int, last: int, instant_ns: int) -> int:
    """A seq from `oldest` - 1 to `last` with nothing at or after that instant up to it: by halving, since the events of
    a store are in the order of its clock."""
    low, high = max(0, oldest - 1), last  # What is wanted is in low … high.
    while low < high:
        middle = (low + high + 1) // 2
        events, _ = history.events_after(middle - 1, 1)
        if events and events[0].seq <= high and events[0].ts * 1_000 < instant_ns - instant_ns % 1_000:
            low = events[0].seq
        else:
            high = middle - 1
    return low


class OpenStoreReader:
    """The same over a store that this process has open: for those that cannot be read from outside."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._flows: dict[str, Flow] = {}
        self._seq = store.health().last_seq
        self.counting_since = self._seq

    def moment(self) -> AbstractContextManager[None]:
        return nullcontext()  # Whatever is done to the store is done by this process.

    def entities(self) -> list[EntityInfo]:
        while True:
            events, safe = self.events_after(self._seq, PAGE, CAME | WENT)
            count_flows(self._flows, events)
            self._seq = events[-1].seq if events else max(self._seq, safe)
            if not events:
                return self._store.entities().wait()

    def flows(self) -> dict[str, Flow]:
        return self._flows

    def find(self, entity: str, sequence: int) -> StoredMessage | None:
        return self._store.find(entity, sequence)

    def held(self) -> list[StoredMessage]:
        return sorted(self._store.held(), key=lambda entry: (entry.entity.name, entry.sequence))

    def data_of(self, entries: Sequence[StoredMessage]) -> dict[StoredMessage, bytes]:
        return self._store.data_of(entries)

    def session_states(self, entity: str) -> dict[str, bytes]:
        return self._store.catalog.session_states(entity).wait()

    def stored(self, entity: str, after_sequence: int, since_ns: int) -> dict[int, int]:
        return self._store.history.stored(entity, after_sequence, since_ns)

    def replay(self, entity: str, after_sequence: int, since_ns: int) -> Iterator[tuple[int, bytes]]:
        return self._store.history.replay(entity, after_sequence, since_ns)

    def events_after(self, seq: int, limit: int = PAGE, kinds: Collection[str] = ()) -> tuple[list[Event], int]:
        return self._store.history.events_after(seq, limit, kinds)

    def events_of(self, message_id: str) -> list[Event]:
        return self._store.history.events_of(message_id)

    def last_events(self, count: int, wanted: Callable[[Event], bool]) -> list[Event]:
        health = self._store.health()
        return last_events(self._store.history, health.oldest_seq, health.last_seq, count, wanted)[0]

    def seq_before(self, instant_ns: int) -> int:
        health = self._store.health()
        return seq_before(self._store.history, health.oldest_seq, health.last_seq, instant_ns)

    def last_seq(self) -> int:
        return self._store.health().last_seq

    def close(self) -> None:
        """The store belongs to somebody else."""
