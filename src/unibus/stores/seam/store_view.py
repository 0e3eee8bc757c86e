"""Reading a store without owning it: its messages and its history, also while another process owns it.

An embedded store has one owner. A reader needs no ownership: it must not slow the owner down, nor make a program fail
that becomes the owner at this moment. So a reader writes nothing and takes no lasting lock. Each call sees the store as
it is written at that moment: what the owner has decided and not written yet is missing, and what is written may not be
synced yet.

`open_reader` in stores/schemes.py opens a reader of a store that can be read from outside. OpenStoreReader reads any
other store through the open store itself.
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
"""Kinds of events that count as a message arriving at an entity, and as one that was completed."""

PAGE: Final = 1_000
PAGE_CHANGES: Final = 20_000
PAGE_BYTES: Final = 16_000_000
"""How much a reader of the whole history reads in one call."""


@dataclass
class Flow:
    """Messages that arrived at an entity, and that were completed there, since its reader began to count."""

    came: int = 0
    went: int = 0


class StoreReader(Protocol):
    @property
    def counting_since(self) -> int:
        """The seq after which `flows` counts. When it changes, the counts have started again."""

    def moment(self) -> AbstractContextManager[None]:
        """All that is read inside this block is of one moment. Keep it short: the owner's log grows meanwhile."""

    def entities(self) -> list[EntityInfo]:
        """All entities now. A deadline that has passed counts as applied, also if there is no owner to apply it."""

    def flows(self) -> dict[str, Flow]:
        """By the name of the entity, as of the last call of `entities`."""

    def get_message(self, entity: str, sequence: int) -> StoredMessage | None:
        """One message, as of the last call of `entities`."""

    def list_messages(self) -> list[StoredMessage]:
        """All messages, by entity and then by sequence."""

    def read_bodies(self, entries: Sequence[StoredMessage]) -> dict[StoredMessage, bytes]:
        """The encoded messages, without those that were removed meanwhile. Inside one `moment` none is missing."""

    def session_states(self, entity: str) -> dict[str, bytes]:
        """By session id, as of the last call of `entities`."""

    def stored(self, entity: str, after_sequence: int, since_ns: int) -> dict[int, int]:
        """As History.stored; the next three as in History, too."""

    def replay(self, entity: str, after_sequence: int, since_ns: int) -> Iterator[tuple[int, bytes]]: ...

    def events_after(self, seq: int, limit: int = PAGE, kinds: Collection[str] = ()) -> tuple[list[Event], int]: ...

    def events_of(self, message_id: str) -> list[Event]: ...

    def last_events(self, count: int, wanted: Callable[[Event], bool]) -> list[Event]:
        """The newest events that `wanted` accepts, the oldest first."""

    def seq_before(self, instant_ns: int) -> int:
        """A seq up to which all events are older than the instant: where to start reading what happened since."""

    def last_seq(self) -> int: ...

    def close(self) -> None: ...


class HistoryReader(Protocol):
    """For a reader that follows the whole history beside the owner: raw changes, many at a time.

    A read ends as soon as its data is copied: the owner's write-ahead log cannot shrink during a read.
    """

    @property
    def domain(self) -> str: ...

    def identity(self) -> object:
        """Identifies the file. When it changes, the file was replaced."""

    def bounds(self) -> tuple[int, int]:
        """The first and the last seq that can be read; (0, 0) for an empty history, (n + 1, n) if all of it was
        pruned."""

    def groups_after(self, seq: int, changes_max: int = PAGE_CHANGES) -> list[tuple[int, list[Change]]]:
        """Changes after `seq`, in the groups in which they were written: the seq of the first, and all of them.

        The first group begins after `seq + 1` where history was pruned. There may be a few more than `changes_max`.
        """

    def names_of(self, entities: Iterable[int]) -> dict[int, str]:
        """The names of entities by number, also of deleted ones. It may have more than asked for."""

    def settle(self) -> None:
        """Sync the store's files, so that a power cut cannot undo what was read so far."""

    def seq_before(self, instant_ns: int) -> int:
        """As StoreReader.seq_before."""

    def cursors(self) -> dict[str, int]:
        """The positions of named readers, as the owner sees them."""

    def show_cursor(self, name: str, seq: int) -> None:
        """Show the position of this reader to the owner. Written to a file beside the store, because a reader never
        writes into it."""

    def close(self) -> None: ...


def count_flows(flows: dict[str, Flow], events: list[Event]) -> None:
    for event in events:
        flow = flows.setdefault(event.channel, Flow())
        if event.kind in WENT:
            flow.went += 1
        elif event.kind != "activated" or (event.attrs or {}).get("new_sequence") != str(event.sequence):
            flow.came += 1  # A delayed redelivery keeps its sequence: that message was in the entity all the time.


def last_events(
    history: History,
    oldest: int,
    last: int,
    count: int,
    wanted: Callable[[Event], bool],
    goes_on: Callable[[], bool] = lambda: True,
) -> tuple[list[Event], int]:
    """The newest `count` events from `oldest` to `last` that `wanted` accepts, in order, and the first seq read.

    Reads backwards, window by window, so that the end of a long history costs no more than that of a short one.
    `goes_on` is called before each window after the first.
    """
    found: list[list[Event]] = []
    missing, end = count, last
    while missing > 0 and end >= oldest and (not found or goes_on()):
        begin = max(oldest - 1, end - PAGE)
        events, _ = history.events_after(begin, end - begin)
        # Where seqs have gaps, a page reaches beyond its window, into events that the window before it had.
        page = [event for event in events if event.seq <= end and wanted(event)][-missing:]
        found.append(page)
        missing -= len(page)
        end = begin
    return [event for page in reversed(found) for event in page], end + 1


def seq_before(history: History, oldest: int, last: int, instant_ns: int) -> int:
    """The last seq from `oldest` - 1 to `last` up to which all events are older than the instant: by binary search,
    because the events of a store are in the order of its clock."""
    low, high = max(0, oldest - 1), last  # The result is in low … high.
    while low < high:
        middle = (low + high + 1) // 2
        events, _ = history.events_after(middle - 1, 1)
        # An Event has microseconds, so the instant is cut to them: an event of the same microsecond must not count as
        # older. Where seqs have gaps, the event that was found may lie beyond `middle`.
        if events and events[0].seq <= high and events[0].ts * 1_000 < instant_ns - instant_ns % 1_000:
            low = events[0].seq
        else:
            high = middle - 1
    return low


class OpenStoreReader:
    """A StoreReader over a store that this process has open: for stores that cannot be read from outside."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._flows: dict[str, Flow] = {}
        self._seq = store.health().last_seq
        self.counting_since = self._seq

    def moment(self) -> AbstractContextManager[None]:
        return nullcontext()  # Only this process changes the store.

    def entities(self) -> list[EntityInfo]:
        while True:
            # Events first: every message that the flows count was in the state that `entities` reads afterwards, or has
            # left it since.
            events, safe = self.events_after(self._seq, PAGE, CAME | WENT)
            count_flows(self._flows, events)
            self._seq = events[-1].seq if events else max(self._seq, safe)
            if not events:
                return self._store.entities().wait()

    def flows(self) -> dict[str, Flow]:
        return self._flows

    def get_message(self, entity: str, sequence: int) -> StoredMessage | None:
        return self._store.get_message(entity, sequence)

    def list_messages(self) -> list[StoredMessage]:
        return sorted(self._store.list_messages(), key=lambda entry: (entry.entity.name, entry.sequence))

    def read_bodies(self, entries: Sequence[StoredMessage]) -> dict[StoredMessage, bytes]:
        return self._store.read_bodies(entries)

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
        """The caller owns the store, and closes it."""
