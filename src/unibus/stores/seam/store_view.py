"""Reading a store: its entities, messages and history. One protocol for every reader: queries, exports, top and tail.

    SqliteReader    a SQLite file, beside the process that owns it (stores/sqlite/reader.py; `open_reader` opens it)
    OpenStoreView   any store that this process has open
    CopiedView      an open store as it was at one moment (seam/moment.py)

An embedded store has one owner. A reader of its file needs no ownership: it must not slow the owner down, nor make a
program fail that becomes the owner at this moment. So it writes nothing and takes no lasting lock. It sees what is
written: what the owner has decided and not written yet is missing, and what is written may not be synced yet.

A view has few methods; what can be derived from them is a function below, written once. HistoryReader is for another
purpose: it follows the raw changes of a file, for capture.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol

from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.changes import Change
from unibus.errors import EntityNotFound
from unibus.stores.seam.history import EventHistory
from unibus.stores.seam.info_of import EntityInfo
from unibus.stores.seam.message_record import LIST_PAGE, MessageKey, MessageRecord, pages_of
from unibus.stores.seam.store import Store

CAME: Final = frozenset({"sent", "published", "copied", "activated"})
WENT: Final = frozenset({"completed"})
"""Kinds of events that count as a message arriving at an entity, and as one that was completed."""

PAGE: Final = 1_000
PAGE_CHANGES: Final = 20_000
PAGE_BYTES: Final = 16_000_000
"""How much a reader of the whole history reads in one call."""


class StoreView(EventHistory, Protocol):
    """For one thread. It may wait for the disk or for the store."""

    def moment(self) -> AbstractContextManager[None]:
        """Everything that is read inside this block is of one moment, if another process changes the store.

        Keep it short: the log of the owner grows meanwhile.
        """

    def entities(self) -> list[EntityInfo]:
        """All entities by name. A deadline that has passed counts as applied, also if there is no owner to apply it."""

    def list_messages(self, entity: str, from_sequence: int = 0, count: int = LIST_PAGE) -> list[MessageRecord]:
        """As Store.list_messages."""

    def read_bodies(self, keys: Sequence[MessageKey]) -> dict[MessageKey, bytes]:
        """As Store.read_bodies. Inside one `moment` no message that was listed is missing."""

    def session_states(self, entity: str) -> dict[str, bytes]:
        """Session id to state, for every session that has one."""

    def bounds(self) -> tuple[int, int]:
        """The first and the last seq of history."""

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

    def show_cursor(self, name: str, seq: int) -> None:
        """Show the position of this reader to the owner. Written to a file beside the store, because a reader never
        writes into it."""

    def close(self) -> None: ...


# Derived from a view


def find_message(view: StoreView, entity: str, sequence: int) -> MessageRecord | None:
    """The message with this sequence, or None."""
    try:
        found = view.list_messages(entity, sequence, 1)
    except EntityNotFound:
        return None
    return found[0] if found and found[0].sequence == sequence else None


def messages_of(view: StoreView, info: EntityInfo) -> Iterator[MessageRecord]:
    """The messages of an entity, read page by page; without those that arrived after `info` was read."""
    for page in pages_of(lambda at, count: view.list_messages(info.name, at, count), info.last_sequence):
        yield from page


def all_messages(view: StoreView) -> Iterator[MessageRecord]:
    """The messages of all entities, entity by entity."""
    for info in view.entities():
        yield from messages_of(view, info)


@dataclass
class Flow:
    """Messages that arrived at an entity, and that were completed there, since the counting began."""

    came: int = 0
    went: int = 0


class FlowCounter:
    """Counts the events of a view from its creation on. `since` is the seq after which it counts.

    It begins again, with another `since`, if events that it has not counted were pruned, or the store was replaced by a
    shorter one.
    """

    def __init__(self, view: StoreView) -> None:
        self._view = view
        self._begin(view.bounds()[1])

    def _begin(self, seq: int) -> None:
        self.flows: dict[str, Flow] = {}
        self.since = self._seq = seq

    def count(self) -> dict[str, Flow]:
        """By the name of the entity. Count first and read the entities afterwards: every counted message is in their
        state, or has left it since."""
        oldest, last = self._view.bounds()
        if last < self._seq or oldest > self._seq + 1:
            self._begin(last)
        while self._seq < last:
            events, safe = self._view.events_after(self._seq, PAGE, CAME | WENT)
            count_flows(self.flows, events)
            self._seq = events[-1].seq if len(events) >= PAGE else max(self._seq, safe)
        return self.flows


def count_flows(flows: dict[str, Flow], events: list[Event]) -> None:
    for event in events:
        flow = flows.setdefault(event.channel, Flow())
        if event.kind in WENT:
            flow.went += 1
        elif event.kind != "activated" or (event.attrs or {}).get("new_sequence") != str(event.sequence):
            flow.came += 1  # A delayed redelivery keeps its sequence: that message was in the entity all the time.


def last_events(
    history: EventHistory,
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


def seq_before(history: EventHistory, oldest: int, last: int, instant_ns: int) -> int:
    """The last seq from `oldest` - 1 to `last` up to which all events are older than the instant: by binary search,
    because the events of a store are in the order of its clock."""

    def instant_after(seq: int) -> tuple[int, int] | None:
        events, _ = history.events_after(seq, 1)
        return (events[0].seq, events[0].ts * 1_000) if events else None

    # An Event has microseconds, so the instant is cut to them: an event of the same microsecond must not count as
    # older.
    return _seq_before(instant_after, oldest, last, instant_ns - instant_ns % 1_000)


def change_before(reader: HistoryReader, instant_ns: int) -> int:
    """The same for raw changes."""

    def instant_after(seq: int) -> tuple[int, int] | None:
        groups = reader.groups_after(seq, 1)
        return (groups[0][0], groups[0][1][0].at_ns) if groups else None

    return _seq_before(instant_after, *reader.bounds(), instant_ns)


def _seq_before(instant_after: Callable[[int], tuple[int, int] | None], oldest: int, last: int, instant_ns: int) -> int:
    """`instant_after` has the first seq after the given one, and its instant."""
    low, high = max(0, oldest - 1), last  # The result is in low … high.
    while low < high:
        middle = (low + high + 1) // 2
        found = instant_after(middle - 1)
        # Where seqs have gaps, the event that was found may lie beyond `middle`.
        if found is not None and found[0] <= high and found[1] < instant_ns:
            low = found[0]
        else:
            high = middle - 1
    return low


class OpenStoreView:
    """A view of a store that this process has open. The caller owns the store, and closes it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.events_after = store.history.events_after
        self.events_of = store.history.events_of
        self.replay_index = store.history.replay_index

    def moment(self) -> AbstractContextManager[None]:
        return nullcontext()  # Only this process changes the store.

    def entities(self) -> list[EntityInfo]:
        return self._store.entities().wait()

    def list_messages(self, entity: str, from_sequence: int = 0, count: int = LIST_PAGE) -> list[MessageRecord]:
        return self._store.list_messages(entity, from_sequence, count).wait()

    def read_bodies(self, keys: Sequence[MessageKey]) -> dict[MessageKey, bytes]:
        return self._store.read_bodies(keys).wait()

    def session_states(self, entity: str) -> dict[str, bytes]:
        return self._store.catalog.session_states(entity).wait()

    def bounds(self) -> tuple[int, int]:
        health = self._store.health()
        return health.oldest_seq, health.last_seq

    def close(self) -> None:
        """Nothing of its own is open."""


class CopiedView(OpenStoreView):
    """Entities, messages and states of sessions of one moment, for a reader that takes long. History goes on."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._copy = store.copied().wait()

    def entities(self) -> list[EntityInfo]:
        return self._copy.entities

    def list_messages(self, entity: str, from_sequence: int = 0, count: int = LIST_PAGE) -> list[MessageRecord]:
        return self._copy.page(entity, from_sequence, count)

    def read_bodies(self, keys: Sequence[MessageKey]) -> dict[MessageKey, bytes]:
        return {key: self._copy.bodies[key] for key in keys if key in self._copy.bodies}

    def session_states(self, entity: str) -> dict[str, bytes]:
        return self._copy.session_states.get(entity, {})
