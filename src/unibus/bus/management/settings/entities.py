"""Entities for operators: records, pages by name, and a live view that is updated each second for all watchers.

    reading each second ──▶ rows that differ from the last reading ──▶ one batch of changes, encoded once
                                                                       └─▶ every watcher, from its own version

A reading makes a record of every entity, in slices, so that the loop serves other requests in between. Without watchers
there are no readings, and a namespace so large that a reading takes long is read less often (SHARE_MAX).
"""

import asyncio
import contextlib
import heapq
import time
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from unibus.bus.management.wake import Wake
from unibus.core.lifecycle.state.settings import shown

if TYPE_CHECKING:
    from unibus.bus.api.broker import Broker, EntityInfo

KINDS: Final = ("queue", "topic", "subscription")
DEAD_LETTERS: Final = "dead-letter queue"
PAGE: Final = 100
EVERY_S: Final = 1.0
SHARE_MAX: Final = 0.02
"""The share of the loop's time for readings: after one that took 40 ms the next one follows two seconds later."""

SLICE_S: Final = 0.004
BATCHES_MAX: Final = 64
"""Batches of changes that are kept for slow watchers. A watcher that is further behind gets all rows again."""


class EntityRecord(msgspec.Struct, frozen=True):
    """An entity at one moment. An instant of 0 means none; `sent` to `dead_lettered` count since the store was opened.

    Rates are messages per second, arrived and completed; None before the second reading. `settings` have no secrets.
    """

    name: str
    kind: str
    active: int = 0
    locked: int = 0
    scheduled: int = 0
    deferred: int = 0
    dead: int = 0
    size_bytes: int = 0
    last_sequence: int = 0
    oldest_ns: int = 0
    created_ns: int = 0
    updated_ns: int = 0
    accessed_ns: int = 0
    sent: int = 0
    delivered: int = 0
    completed: int = 0
    abandoned: int = 0
    dead_lettered: int = 0
    in_per_s: float | None = None
    out_per_s: float | None = None
    settings: dict[str, object] | msgspec.UnsetType = msgspec.UNSET


_COUNTS: Final = tuple(
    name for name in EntityRecord.__struct_fields__ if name not in ("in_per_s", "out_per_s", "settings")
)


def record_of(info: "EntityInfo", settings: bool = False) -> EntityRecord:
    values = {name: getattr(info, name) for name in _COUNTS}
    return EntityRecord(**values, settings=shown(info.settings) if settings else msgspec.UNSET)


# A page by name


@dataclass(frozen=True)
class EntityPage:
    entities: list[EntityRecord]
    next: str | None
    """The `after` of the next page; None at the end."""


class EntityListing:
    """The entities of some kinds in the order of their names, from any name on. It blocks: use it in a thread."""

    def __init__(self, broker: "Broker", kinds: Iterable[str], prefix: str = "") -> None:
        self._broker: Final = broker
        self._kinds: Final = tuple(kinds)
        self._prefix: Final = prefix.casefold()

    def after(self, name: str) -> "Iterator[EntityInfo]":
        """Lazily, a page of each kind at a time. Entities that are created or deleted meanwhile may be missed."""
        place = name.casefold()
        # Each kind is sorted by name: merging is lazy, and a page reads a page of each kind at most.
        merged = heapq.merge(*[self._of_kind(kind, place) for kind in self._kinds], key=_key)
        for info in merged:
            key = _key(info)
            # Before the prefix only where `place` is before it; `_first_after` has skipped most of these.
            if not key.startswith(self._prefix):
                if key > self._prefix:
                    return  # All names with the prefix are before this one.
                continue
            yield info

    def _of_kind(self, kind: str, place: str) -> "Iterator[EntityInfo]":
        skip = self._first_after(kind, place)
        while True:
            page = self._broker.entities(kind, None, skip, PAGE).wait()
            yield from page
            if len(page) < PAGE:
                return
            skip += PAGE

    def _first_after(self, kind: str, place: str) -> int:
        """The index of the first name of this kind after `place` that is not before the prefix: by binary search."""
        if not place and not self._prefix:
            return 0
        places = _Names(self._broker, kind)
        before = bisect_right(places, place) if place else 0
        return max(before, places.first_with(self._prefix))


class _Names:
    """The names of one kind as a sequence for binary search."""

    def __init__(self, broker: "Broker", kind: str) -> None:
        self._broker = broker
        self._kind = kind
        self._length = self._count()

    def _count(self) -> int:
        """The number of names: doubling finds an upper bound, halving the exact one."""
        low, high = 0, 1
        # The catalog pages by index and gives no count: some forty lookups find it among a million names.
        while self._at(high - 1) is not None:
            low, high = high, high * 2
        while low < high:
            middle = (low + high) // 2
            if self._at(middle) is None:
                high = middle
            else:
                low = middle + 1
        return low

    def _at(self, place: int) -> str | None:
        found = self._broker.entities(self._kind, None, place, 1).wait()
        return _key(found[0]) if found else None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: int) -> str:
        # Deleted since the count: after all names, so that the search stays in bounds.
        return self._at(place) or "\U0010ffff"

    def first_with(self, prefix: str) -> int:
        low, high = 0, self._length
        while low < high:
            middle = (low + high) // 2
            if self[middle] < prefix:
                low = middle + 1
            else:
                high = middle
        return low


def _key(info: "EntityInfo") -> str:
    return info.name.casefold()


def page_of(
    listing: EntityListing, after: str, top: int, settings: bool, is_visible: Callable[[str], bool]
) -> EntityPage:
    """Up to `top` of the visible entities. It blocks: most entities may be hidden from the caller."""
    found: list[EntityRecord] = []
    for info in listing.after(after):
        if is_visible(info.name):
            # One more visible entity exists, so there is a next page. Without this look the last page would point to an
            # empty one.
            if len(found) == top:
                return EntityPage(found, found[-1].name)
            found.append(record_of(info, settings))
    return EntityPage(found, None)


# Watching all of them


@dataclass(frozen=True)
class Changes:
    """The result of one reading: rows that differ from the last reading, and names that no longer exist."""

    version: int
    rows: dict[str, bytes]
    removed: frozenset[str]


@dataclass(frozen=True)
class Totals:
    """Sums over all entities. Rates are None before the second reading."""

    entities: int = 0
    active: int = 0
    dead: int = 0
    in_per_s: float | None = None
    out_per_s: float | None = None


class EntityWatch:
    """All entities of one broker, for the watchers of one event loop. Rows are records as JSON."""

    def __init__(self, broker: "Broker") -> None:
        self.changed: Final = Wake()
        """Wakes watchers after each reading, and when `failure` is set."""
        self.failure: BaseException | None = None
        self.version = 0
        self.rows: dict[str, bytes] = {}
        self.totals = Totals()
        self.readings = 0
        self.busy_s = 0.0
        """The loop's time that readings took so far."""
        self._broker: Final = broker
        self._batches: deque[Changes] = deque(maxlen=BATCHES_MAX)
        self._before: dict[str, EntityRecord] = {}
        self._read_s = 0.0
        self._watchers = 0
        self._reading: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Inside of this context there is a reading each second. The first one is complete on entry."""
        self._watchers += 1
        try:
            if self._reading is None:
                self.failure = None
                self._reading = asyncio.ensure_future(self._read_repeatedly())
            # `_before` is set by the readings for an earlier watcher: then the rows are complete, and no reading is
            # waited for.
            first = self.version
            while not self._before and self.failure is None and self.version == first:
                await self.changed.wait(None)
            if self.failure is not None:
                raise self.failure
            yield
        finally:
            self._watchers -= 1
            if not self._watchers and self._reading is not None:
                # The last watcher has left. The rows are freed: the next watcher begins with a whole reading.
                self._reading.cancel()
                self._reading = None
                self._reset()

    def changes_since(self, version: int) -> Changes | None:
        """All changes since a version, merged; None if they are no longer kept."""
        batches = [each for each in self._batches if each.version > version]
        # The batch after the watcher's version is evicted: what it had changed is not known any more.
        if version < self.version and (not batches or batches[0].version != version + 1):
            return None
        rows: dict[str, bytes] = {}
        removed: set[str] = set()
        for batch in batches:
            # In the order of the readings: an entity that was removed and created again is in `rows`, and not in
            # `removed`.
            rows = {name: row for name, row in rows.items() if name not in batch.removed} | batch.rows
            removed = (removed | batch.removed) - batch.rows.keys()
        return Changes(self.version, rows, frozenset(removed))

    def _reset(self) -> None:
        self.rows, self._before, self.totals = {}, {}, Totals()
        self._batches.clear()

    async def _read_repeatedly(self) -> None:
        try:
            while True:
                before_s = self.busy_s
                await self._read()
                self.changed.wake()
                await asyncio.sleep(max(EVERY_S, (self.busy_s - before_s) / SHARE_MAX))
        # The store has failed or is closed. Each watcher raises the error, and the next one starts a new task.
        except Exception as error:
            self.failure = error
            self._reading = None
            self._reset()
            self.changed.wake()

    async def _read(self) -> None:
        now_s = time.monotonic()
        # Without an earlier reading there is nothing to compare with: rates are None.
        passed_s = now_s - self._read_s if self._before else 0.0
        found: dict[str, EntityRecord] = {}
        changed: dict[str, bytes] = {}
        active = dead = arrived = completed = 0
        async for info in self._infos():
            before = self._before.get(info.name)
            record = _with_rates(info, before, passed_s)
            found[info.name] = record
            active += info.active
            dead += info.dead
            if before is not None:
                # Copies in subscriptions are not counted: the topic has counted the message already.
                arrived += max(0, info.sent - before.sent) if info.kind != "subscription" else 0
                completed += max(0, info.completed - before.completed)
            if record != before:
                changed[info.name] = msgspec.json.encode(record)
        rates = (round(arrived / passed_s, 1), round(completed / passed_s, 1)) if passed_s else (None, None)
        self.totals = Totals(len(found), active, dead, *rates)
        removed = frozenset(self._before.keys() - found.keys())
        # From here on without an await: a watcher never sees a version without its rows.
        self.version += 1
        self.readings += 1
        self._batches.append(Changes(self.version, changed, removed))
        self.rows = {name: row for name, row in self.rows.items() if name not in removed} | changed
        self._before, self._read_s = found, now_s

    async def _infos(self) -> "AsyncIterator[EntityInfo]":
        """Each entity once, in slices. `busy_s` also counts the time that the consumer of this iterator takes."""
        began_s = time.perf_counter()
        seen: set[str] = set()
        for kind in KINDS:
            skip = 0
            while page := await self._broker.entities(kind, None, skip, PAGE):
                for info in page:
                    if info.name not in seen:  # Pages shift when an entity is created.
                        seen.add(info.name)
                        yield info
                skip += PAGE
                passed_s = time.perf_counter() - began_s
                if passed_s >= SLICE_S:
                    self.busy_s += passed_s
                    await asyncio.sleep(0)
                    began_s = time.perf_counter()
                if len(page) < PAGE:
                    break
        self.busy_s += time.perf_counter() - began_s


def _with_rates(info: "EntityInfo", before: EntityRecord | None, passed_s: float) -> EntityRecord:
    record = record_of(info)
    if before is None or not passed_s:
        return record
    # `accessed_ns` changes with every empty receive: alone it is not a change worth sending.
    unaccessed = msgspec.structs.replace(record, accessed_ns=before.accessed_ns)
    arrived = round(max(0, info.sent - before.sent) / passed_s, 1)
    completed = round(max(0, info.completed - before.completed) / passed_s, 1)
    return msgspec.structs.replace(unaccessed, in_per_s=arrived, out_per_s=completed)
