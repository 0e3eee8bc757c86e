"""What a store remembers of batches with an id: its bounds, recovery, the clock, and what an answer waits for."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from unibus.core.lifecycle.commands import Declare, Send, SendResult
from unibus.core.lifecycle.state import applied_batches
from unibus.core.lifecycle.state.changes import Change, MessageRef
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import StoreFailed
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.engine.snapshot_limits import SnapshotLimits
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.journal import Journal, SnapshotSlice
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock

SECOND = 1_000_000_000
SNAPSHOTS = [5, 200_000]


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    with VirtualClock() as clock:
        yield clock


@pytest.fixture(params=["sqlite", "jsonfile"])
def journal_at(request: pytest.FixtureRequest) -> Callable[[Path], Journal]:
    if request.param == "sqlite":
        return lambda folder: SqliteJournal(str(folder / "bus.db"))
    return lambda folder: JsonFileJournal(str(folder / "bus"))


def opened(journal: Journal, clock: VirtualClock, every: int, durability: Durability | None = None) -> EmbeddedStore:
    limits = SnapshotLimits(at_close=every < 100)
    return EmbeddedStore(
        journal, clock, clock.timers(lambda: True), durability=durability, snapshot_every=every, snapshot_limits=limits
    )


def send(number: int) -> Send:
    return Send("q", MessageRef(f"m{number}", 1), b"x", 20)


def sequence(store: EmbeddedStore, number: int, first_ns: int = 0) -> int:
    """Send message `number` in the batch `number`, and wait."""
    [result] = store.apply([send(number)], None, f"b{number}", first_ns).wait(10)
    assert isinstance(result, SendResult)
    return result.sequence


def stored(store: EmbeddedStore) -> list[str]:
    return [each.who.message_id for each in store.peek("q", 0, 1_000).wait(10)]


@pytest.mark.parametrize("every", SNAPSHOTS)
def test_beyond_the_bound_the_oldest_are_refused_also_after_a_recovery(
    journal_at: Callable[[Path], Journal],
    tmp_path: Path,
    clock: VirtualClock,
    every: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(applied_batches, "RESULTS_MAX", 3)
    store = opened(journal_at(tmp_path), clock, every)
    store.apply([Declare("q", QUEUE, {})]).wait(10)
    firsts = []
    for number in range(6):
        clock.advance(1)
        firsts.append(store.now_ns())
        assert sequence(store, number, firsts[-1]) == number + 1
    for _ in range(3):
        assert store.check() == []
        for number in (0, 1, 2):
            with pytest.raises(StoreFailed, match=r"'b[012]' was applied: its first attempt is older"):
                sequence(store, number, firsts[number])
        for number in (3, 4, 5):
            assert sequence(store, number, firsts[number]) == number + 1
        assert len(stored(store)) == 6
        store.close()
        store = opened(journal_at(tmp_path), clock, every)
    # A new batch is accepted, whose first attempt is later than every evicted one.
    assert sequence(store, 6, firsts[2] + 1) == 7
    store.close()


@pytest.mark.parametrize("every", SNAPSHOTS)
def test_a_batch_that_was_written_is_answered_after_a_crash(
    journal_at: Callable[[Path], Journal], tmp_path: Path, clock: VirtualClock, every: int
) -> None:
    """The files as they are after kill -9: no close, and whatever slice of a snapshot is there."""
    here = tmp_path / "0"
    here.mkdir()
    store = opened(journal_at(here), clock, every)
    store.apply([Declare("q", QUEUE, {})]).wait(10)
    for number in range(12):
        assert sequence(store, number) == number + 1
        left = tmp_path / str(number + 1)
        shutil.copytree(here, left, ignore=shutil.ignore_patterns("*.lock", "*-shm", "*.serve.json"))
        again = opened(journal_at(left), clock, every)
        assert [sequence(again, each) for each in range(number + 1)] == list(range(1, number + 2))
        assert again.check() == []
        assert len(stored(again)) == number + 1
        again.close()
    store.close()


@pytest.mark.parametrize("every", SNAPSHOTS)
def test_a_clock_that_is_set_back_doubles_nothing(
    journal_at: Callable[[Path], Journal], tmp_path: Path, clock: VirtualClock, every: int
) -> None:
    store = opened(journal_at(tmp_path), clock, every)
    store.apply([Declare("q", QUEUE, {})]).wait(10)
    first_ns = store.now_ns()
    sequence(store, 0, first_ns)
    clock.advance(650)
    later_ns = store.now_ns()
    sequence(store, 1, later_ns)  # The first one is evicted by its age.
    store.close()
    clock.set_wall(
        datetime.fromtimestamp(first_ns / SECOND + 60, UTC)
    )  # As if only a minute had passed since the first.
    store = opened(journal_at(tmp_path), clock, every)
    with pytest.raises(StoreFailed, match="unknown"):
        sequence(store, 0, first_ns)
    assert sequence(store, 1, later_ns) == 2
    assert sequence(store, 2, store.now_ns()) == 3
    assert sequence(store, 2, first_ns + 61 * SECOND) == 3
    assert stored(store) == ["m0", "m1", "m2"]
    assert store.check() == []
    store.close()


class WatchedJournal(SqliteJournal):
    """Counts synced appends, and calls `before` first."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.synced = 0
        self.before: Callable[[], None] = lambda: None

    def append(self, first_seq: int, changes: list[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        self.before()
        super().append(first_seq, changes, sync, part)
        self.synced += sync


def test_a_copy_that_asks_for_a_sync_waits_for_one(tmp_path: Path, clock: VirtualClock) -> None:
    journal = WatchedJournal(str(tmp_path / "bus.db"))
    store = opened(journal, clock, 200_000, Durability.D1)
    store.apply([Declare("q", QUEUE, {})]).wait(10)
    store.apply([send(1)], Durability.D1, "b1").wait(10)
    before = journal.synced
    store.apply([send(1)], Durability.D1, "b1").wait(10)
    assert journal.synced == before
    store.apply([send(1)], Durability.D2, "b1").wait(10)
    assert journal.synced == before + 1
    store.close()


def test_a_copy_is_not_answered_before_the_first_one_is_written(tmp_path: Path, clock: VirtualClock) -> None:
    store = opened(WatchedJournal(str(tmp_path / "bus.db")), clock, 200_000, Durability.D1)
    store.apply([Declare("q", QUEUE, {})]).wait(10)
    first = store.apply([send(1)], None, "b1")
    second = store.apply([send(1)], None, "b1")
    assert not first.done
    assert not second.done
    second.wait(10)
    assert first.done
    assert stored(store) == ["m1"]
    store.close()


def test_a_copy_of_a_batch_that_could_not_be_written_fails_too(tmp_path: Path, clock: VirtualClock) -> None:
    journal = WatchedJournal(str(tmp_path / "bus.db"))
    store = opened(journal, clock, 200_000)
    store.apply([Declare("q", QUEUE, {})]).wait(10)

    def fail() -> None:
        raise StoreFailed("the disk is gone")

    first = store.apply([send(1)], None, "b1")
    second = store.apply([send(1)], None, "b1")
    journal.before = fail
    for pending in (first, second):
        with pytest.raises(StoreFailed):
            pending.wait(10)
    store.close()


def test_a_batch_without_an_id_writes_no_more_than_its_changes(tmp_path: Path, clock: VirtualClock) -> None:
    store = opened(SqliteJournal(str(tmp_path / "bus.db")), clock, 200_000)
    store.apply([Declare("q", QUEUE, {})]).wait(10)
    before = store.health().last_seq
    store.apply([send(1)]).wait(10)
    assert store.health().last_seq == before + 1
    store.close()
