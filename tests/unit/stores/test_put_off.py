"""What goes along with a group and finds no space: it is kept, tried again, and counts only when it is written."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from unibus.core.lifecycle.commands import Declare, Send
from unibus.core.lifecycle.state.changes import Change, MessageRef, Sent
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import StoreFailed
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.engine.snapshot import PUT_OFF_NS, Snapshot
from unibus.stores.engine.snapshot_limits import SnapshotLimits
from unibus.stores.files.disk import RealFiles, SyncFailed
from unibus.stores.files.reserve import Reserve
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.jsonfile.snapshot import PART
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.journal import SnapshotSlice
from unibus.stores.sql import trace_index
from unibus.stores.sql.index import SqlIndex
from unibus.stores.sql.tables import SqlTables
from unibus.stores.sqlite.file import SqliteTransaction, open_file
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock

MINUTE_S = PUT_OFF_NS / 1e9


# The snapshot itself


class Pieces:
    """A snapshot of an empty store, which has one piece: the last."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.journal.snapshots = True
        self.now_ns = 1_000
        self.snapshot = Snapshot(self.journal, StoreState(0), lambda: self.now_ns, 0, 10, SnapshotLimits())

    def next(self, seq: int) -> SnapshotSlice | None:
        return self.snapshot.next_part(seq, set())


def test_a_piece_that_found_no_space_is_tried_again_after_a_minute() -> None:
    pieces = Pieces()
    part = pieces.next(10)
    assert part is not None
    assert part.last is not None
    part.put_off = True
    pieces.snapshot.wrote(part)
    assert pieces.snapshot.seq == 0, "history up to there must not be forgotten: the log is all there is"
    assert pieces.next(500) is None
    pieces.now_ns += PUT_OFF_NS
    again = pieces.next(501)
    assert again is part
    assert not part.put_off
    pieces.snapshot.wrote(part)
    assert pieces.snapshot.seq == 10
    assert pieces.next(19) is None


def test_rows_that_a_reader_waits_for_stay_when_their_piece_is_tried_again() -> None:
    pieces = Pieces()
    pieces.snapshot._state.gone = [(1, 1), (1, 2)]
    part = pieces.next(10)
    assert part is not None
    assert part.gone == [(1, 1), (1, 2)]
    part.put_off = True
    pieces.snapshot.wrote(part)
    pieces.now_ns += PUT_OFF_NS
    again = pieces.snapshot.next_part(11, {(1, 2)})
    assert again is part
    assert part.gone == [(1, 1)]
    pieces.snapshot.wrote(part)
    later = pieces.next(12)
    assert later is not None
    assert later.gone == [(1, 2)]


# A sync with it


@pytest.mark.parametrize("alone", [False, True])
def test_a_sync_takes_place_although_the_slice_with_it_is_put_off(tmp_path: Path, alone: bool) -> None:
    """Only a write is synced. With `alone` an earlier commit has tried the slice, and had no change to write."""
    clock, reserve = VirtualClock(), Reserve(str(tmp_path / "reserve"), 1_000_000)
    journal = SqliteJournal(str(tmp_path / "bus.db"), reserve=reserve)
    store = EmbeddedStore(journal, clock, clock.timers(lambda: True))
    store.apply([Declare("a", QUEUE, {})], Durability.D1).wait(10)
    reserve.enter()
    with store._lock:
        store._snapshot.every = 1
    if alone:
        store._committer.commit()
    rows = journal._connection.total_changes()
    store._committer.sync()
    assert journal._connection.total_changes() > rows, "nothing was written, so the declaration is not synced"
    store.close()


# A block of the index


def test_a_block_of_the_index_that_was_rolled_back_is_still_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_index, "BLOCK_CHANGES", 2)
    connection = open_file(str(tmp_path / "bus.db"), "local", None, False)
    index = SqlIndex(SqlTables(connection, "bus.db"), 0, lambda _: [])
    changes: list[Change] = [Sent(0, 1, each, MessageRef(f"m{each}", 1), 50, 0, 0, None, b"x") for each in (1, 2)]
    index.add(changes)
    assert index.is_due()
    transaction = SqliteTransaction(connection)
    transaction.__enter__()
    index.save(1)
    transaction.__exit__(None, OSError("no space"), None)
    assert index.is_due()
    assert [index.find(f"m{each}", 1) for each in (1, 2)] == [[1], [2]]
    with SqliteTransaction(connection):
        block = index.save(1)
    index.saved(block)
    assert not index.is_due()
    assert [index.find(f"m{each}", 1) for each in (1, 2)] == [[1], [2]]
    connection.close()


# JSON files


class NoSpaceFor(RealFiles):
    """No new file whose path has that in it, or no sync of one."""

    def __init__(self) -> None:
        self.refused = self.not_synced = "\0"
        self.paths: dict[int, str] = {}

    def sync(self, handle: int) -> None:
        if self.not_synced in self.paths.get(handle, ""):
            raise SyncFailed(28, "No space left on device")
        super().sync(handle)

    def create(self, path: str, like: str = "") -> int:
        if self.refused in path:
            raise OSError(28, "No space left on device")
        handle = super().create(path)
        self.paths[handle] = path
        return handle


class Rig:
    def __init__(self, folder: Path, reserve: Reserve | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.files, self.clock = folder, NoSpaceFor(), VirtualClock()
        self.store = self.opened(reserve)

    def opened(self, reserve: Reserve | None = None) -> EmbeddedStore:
        journal = JsonFileJournal(str(self.folder), files=self.files, reserve=reserve)
        return EmbeddedStore(journal, self.clock, self.clock.timers(lambda: True), snapshot_every=5, memory_budget_mb=0)

    def send(self, queue: str, count: int) -> None:
        for number in range(count):
            message_id = f"{queue}{number}"
            self.store.apply([Send(queue, MessageRef(message_id, 3), b"abc", 50)]).wait(10)

    def held(self) -> dict[str, list[bytes | None]]:
        return {
            info.name: [each.data for each in self.store.peek(info.name, 0, 100).wait(10)]
            for info in self.store.entities().wait(10)
        }

    def left_over(self) -> list[str]:
        return [path.name for path in self.folder.rglob("*.new")]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "bus")
    yield rig
    rig.store.close()


@pytest.mark.parametrize("refused", [PART, "/messages/", "/entities/", "state.json.new", "/wal/"])
def test_a_snapshot_that_finds_no_space_leaves_nothing_and_comes_later(rig: Rig, refused: str) -> None:
    rig.store.apply([Declare("a", QUEUE, {})]).wait(10)
    rig.send("a", 10)
    assert rig.store.health().snapshot_seq > 0
    before = rig.store.health().snapshot_seq
    rig.store.apply([Declare("b", QUEUE, {})]).wait(10)
    rig.files.refused = refused
    rig.send("b", 10)
    assert rig.store.health().snapshot_seq == before
    assert rig.store.health().ok
    assert rig.left_over() == []
    expected: dict[str, list[bytes | None]] = {"a": [b"abc"] * 10, "b": [b"abc"] * 10}
    assert rig.held() == expected
    rig.files.refused = "\0"
    rig.clock.advance(MINUTE_S)
    rig.store._committer.sync()
    rig.store._committer.flush()  # All of its pieces.
    assert rig.store.health().snapshot_seq > before
    rig.store._committer.trim(rig.store.now_ns())
    assert rig.held() == expected
    rig.store.close()
    rig.store = rig.opened()
    assert rig.held() == expected


def test_a_file_of_a_snapshot_that_cannot_be_synced_stops_the_store(rig: Rig) -> None:
    """Also for want of space: what a failed sync leaves is unknown."""
    rig.store.apply([Declare("a", QUEUE, {})]).wait(10)
    rig.files.not_synced = "/entities/"
    with pytest.raises(StoreFailed):
        rig.send("a", 10)
    assert not rig.store.health().ok


def test_a_full_store_does_not_begin_a_snapshot(tmp_path: Path) -> None:
    reserve = Reserve(str(tmp_path / "reserve"), 1_000_000)
    rig = Rig(tmp_path / "bus", reserve)
    rig.store.apply([Declare("a", QUEUE, {})]).wait(10)
    rig.send("a", 2)
    reserve.enter()
    with rig.store._lock:
        rig.store._snapshot.every = 1
    rig.store._committer.sync()
    assert not (rig.folder / PART).exists()
    assert rig.store.health().snapshot_seq == 0
    rig.store.close()
