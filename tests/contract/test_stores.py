"""The contract of stores on every store there is, in the forms in which it matters how they keep their messages."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.contract.dictionary_journal import Dictionary, DictionaryJournal
from tests.unit.stores.sql.other_engine import OtherJournal
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import Command, Declare
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.engine.snapshot_limits import SnapshotLimits
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.catalog import Catalog
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.history import History
from unibus.stores.seam.message_record import LIST_PAGE, MessageKey, MessageRecord
from unibus.stores.seam.pending import Pending
from unibus.stores.seam.store import ClaimRequest, EntityInfo, SessionLock, Store, StoreHealth, StoreIdentity
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.batch_ids import BatchIdContract
from unibus.testing.contracts.batches import BatchContract
from unibus.testing.contracts.operator_actions import PositionContract
from unibus.testing.contracts.sessions import SessionContract
from unibus.testing.contracts.timing import DedupContract
from unibus.testing.misbehaving_store import MisbehavingStore
from unibus.testing.store_contract import OpenStore, StoreContract

TINY_MB = 0.0001
"""A hundred bytes: nearly every body stays on disk."""


def on_sqlite(path: Path, clock: VirtualClock, every: int, memory_mb: float, at_close: bool = True) -> EmbeddedStore:
    return EmbeddedStore(
        SqliteJournal(str(path / "bus.db")),
        clock,
        clock.timers(lambda: True),
        snapshot_every=every,
        snapshot_limits=SnapshotLimits(at_close=at_close),
        memory_budget_mb=memory_mb,
    )


def on_jsonfile(path: Path, clock: VirtualClock, every: int, memory_mb: float, at_close: bool = True) -> EmbeddedStore:
    return EmbeddedStore(
        JsonFileJournal(str(path / "bus")),
        clock,
        clock.timers(lambda: True),
        snapshot_every=every,
        snapshot_limits=SnapshotLimits(at_close=at_close, rewrites=True),
        memory_budget_mb=memory_mb,
    )


def on_memory(clock: VirtualClock) -> EmbeddedStore:
    return EmbeddedStore(MemoryJournal(), clock, clock.timers(lambda: True))


def on_dictionary(dictionary: Dictionary, clock: VirtualClock) -> EmbeddedStore:
    timers = clock.timers(lambda: True)
    return EmbeddedStore(DictionaryJournal(dictionary), clock, timers, memory_budget_mb=TINY_MB)


def on_another_engine(path: Path, every: int, memory_mb: float, clock: VirtualClock) -> EmbeddedStore:
    journal, timers = OtherJournal(str(path / "other.db")), clock.timers(lambda: True)
    limits = SnapshotLimits(at_close=False)
    return EmbeddedStore(
        journal, clock, timers, snapshot_every=every, snapshot_limits=limits, memory_budget_mb=memory_mb
    )


class Reopening:
    """A store that is closed and opened again before every verb: whatever it needs has to be on disk."""

    def __init__(self, open_again: Callable[[], EmbeddedStore]) -> None:
        self._open = open_again
        self._closed = False
        self._watched = False
        self._store = open_again()
        self.url = self._store.url
        self.durability = self._store.durability
        self.commit_placement = self._store.commit_placement

    def _fresh(self) -> EmbeddedStore:
        # A watch belongs to the object that was asked, so from the first one on it stays.
        if not self._closed and not self._watched:
            self._store.close()
            self._store = self._open()
        return self._store

    @property
    def identity(self) -> StoreIdentity:
        return self._store.identity

    def now_ns(self) -> int:
        return self._store.now_ns()

    def apply(
        self, commands: Sequence[Command], durability: Durability | None = None, batch_id: str = "", first_ns: int = 0
    ) -> Pending[list[object]]:
        return self._fresh().apply(commands, durability, batch_id, first_ns)

    def claim(self, request: ClaimRequest) -> Pending[list[Claimed]]:
        return self._fresh().claim(request)

    def accept(self, entity: str, session_id: str | None, consumer: str) -> Pending[SessionLock | None]:
        return self._fresh().accept(entity, session_id, consumer)

    def watch(self, entity: str, call: Callable[[], None]) -> Callable[[], None]:
        store = self._fresh()
        self._watched = True
        return store.watch(entity, call)

    def peek(
        self, entity: str, from_sequence: int, count: int, session_id: str | None = None
    ) -> Pending[list[Claimed]]:
        return self._fresh().peek(entity, from_sequence, count, session_id)

    @property
    def catalog(self) -> Catalog:
        return self._fresh().catalog

    def session_state(self, lock: SessionLock) -> Pending[bytes | None]:
        return self._fresh().session_state(lock)

    def entities(self) -> Pending[list[EntityInfo]]:
        return self._fresh().entities()

    def subscribe_from(self, declare: Declare, after_sequence: int, since_ns: int) -> Pending[int]:
        return self._fresh().subscribe_from(declare, after_sequence, since_ns)

    def position(self, name: str) -> Pending[int]:
        return self._fresh().position(name)

    def list_messages(
        self, entity: str, from_sequence: int = 0, count: int = LIST_PAGE
    ) -> Pending[list[MessageRecord]]:
        return self._fresh().list_messages(entity, from_sequence, count)

    def read_bodies(self, keys: Sequence[MessageKey]) -> Pending[dict[MessageKey, bytes]]:
        return self._fresh().read_bodies(keys)

    @property
    def history(self) -> History:
        return self._fresh().history

    def health(self) -> StoreHealth:
        return self._store.health()

    def check(self) -> list[str]:
        return self._fresh().check()

    def close(self) -> None:
        self._closed = True
        self._store.close()


class TestMemory(StoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        return on_memory


def late(store: EmbeddedStore, clock: VirtualClock, seed: int = 1) -> Store:
    """The same store, late, with some answers lost and asked for again. The clock waits for its answers."""
    behind = MisbehavingStore(store, late=seed)
    clock.timers(behind.is_idle)
    return behind


class TestLate(StoreContract):
    """Every answer is late: the contract asks for nothing that only a store in the same process can do."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        return lambda clock: late(on_memory(clock), clock)


class TestLateSqlite(BatchContract, BatchIdContract, PositionContract, SessionContract, DedupContract):
    """A part of the contract; tests/soak has all of it."""

    @pytest.fixture
    def open_store(self, folder: Path) -> OpenStore:
        return lambda clock: late(on_sqlite(folder, clock, 5, TINY_MB), clock, 2)


class TestLateJsonFile(BatchContract, BatchIdContract, PositionContract, SessionContract, DedupContract):
    @pytest.fixture
    def open_store(self, folder: Path) -> OpenStore:
        return lambda clock: late(on_jsonfile(folder, clock, 5, TINY_MB), clock, 3)


class TestSqlite(StoreContract):
    @pytest.fixture
    def open_store(self, folder: Path) -> OpenStore:
        return partial(on_sqlite, folder, every=200_000, memory_mb=256)


class TestSqliteThatSnapshotsAllTheTime(StoreContract):
    """Nearly nothing stays in memory, and every few changes there is a snapshot."""

    @pytest.fixture
    def open_store(self, folder: Path) -> OpenStore:
        return partial(on_sqlite, folder, every=5, memory_mb=TINY_MB)


class TestSqliteReopened(StoreContract):
    @pytest.fixture(params=[(5, False), (200_000, False), (200_000, True)], ids=["snapshots", "log", "closed"])
    def open_store(self, folder: Path, request: pytest.FixtureRequest) -> OpenStore:
        def open_store(clock: VirtualClock) -> Store:
            every, at_close = request.param
            return Reopening(partial(on_sqlite, folder, clock, every, TINY_MB, at_close))

        return open_store


class TestDictionary(StoreContract):
    """The journal of docs/guide/write-a-store.md."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        return partial(on_dictionary, Dictionary())


class TestDictionaryReopened(StoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        def open_store(clock: VirtualClock) -> Store:
            return Reopening(partial(on_dictionary, Dictionary(), clock))

        return open_store


class TestAnotherSqlEngine(StoreContract):
    """The row code of stores/sql knows no engine."""

    @pytest.fixture(params=[(200_000, 256.0), (5, TINY_MB)], ids=["log", "snapshots"])
    def open_store(self, folder: Path, request: pytest.FixtureRequest) -> OpenStore:
        return partial(on_another_engine, folder, *request.param)


class TestAnotherSqlEngineReopened(StoreContract):
    @pytest.fixture
    def open_store(self, folder: Path) -> OpenStore:
        def open_store(clock: VirtualClock) -> Store:
            return Reopening(partial(on_another_engine, folder, 5, TINY_MB, clock))

        return open_store


class TestJsonFile(StoreContract):
    @pytest.fixture
    def open_store(self, folder: Path) -> OpenStore:
        return partial(on_jsonfile, folder, every=200_000, memory_mb=256)


class TestJsonFileThatSnapshotsAllTheTime(StoreContract):
    @pytest.fixture
    def open_store(self, folder: Path) -> OpenStore:
        return partial(on_jsonfile, folder, every=5, memory_mb=TINY_MB)


class TestJsonFileReopened(StoreContract):
    """Partly from a snapshot and partly from the log, or from what was saved at close."""

    @pytest.fixture(params=[False, True], ids=["snapshots", "closed"])
    def open_store(self, folder: Path, request: pytest.FixtureRequest) -> OpenStore:
        def open_store(clock: VirtualClock) -> Store:
            return Reopening(partial(on_jsonfile, folder, clock, 7, TINY_MB, request.param))

        return open_store
