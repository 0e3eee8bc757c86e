"""Preallocation of the write-ahead log: extended in advance, and ignored by recovery."""

import shutil
from pathlib import Path

import pytest

from unibus.core.lifecycle.state.changes import Declared, MessageRef, Sent
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.seam.recovery import recover
from unibus.stores.sqlite import journal as sqlite
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.stores.sqlite.wal_preallocation import BEGIN_BYTES, STEP_BYTES, WalPreallocation

GROUP_BYTES = 20_000
CHECKPOINT_BYTES = 16_000_000


@pytest.fixture(autouse=True)
def a_long_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT_BYTES", CHECKPOINT_BYTES)


def opened(path: Path) -> tuple[SqliteJournal, StoreState]:
    journal, state = SqliteJournal(str(path)), StoreState(10**9)
    recover(journal, state)
    return journal, state


def fill(journal: SqliteJournal, first: int, count: int) -> None:
    for number in range(first, first + count):
        sent = Sent(number, 1, number, MessageRef(f"m{number}", GROUP_BYTES), 50, 0, 0, None, bytes(GROUP_BYTES))
        journal.append(number + 1, [sent], True)


def after_a_crash(path: Path, folder: Path) -> Path:
    """The files as a process that is killed now would leave them."""
    folder.mkdir()
    for name in (path.name, f"{path.name}-wal"):
        shutil.copy(path.parent / name, folder / name)
    return folder / path.name


def test_what_was_written_is_found_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    journal, _ = opened(path)
    journal.append(1, [Declared(0, 1, 0, "orders", 1, {})], True)
    fill(journal, 1, 60)
    log = tmp_path / "bus.db-wal"
    assert log.stat().st_size > 60 * (GROUP_BYTES + 4 * 4096), "space is allocated in advance"
    left = after_a_crash(path, tmp_path / "left")
    fill(journal, 61, 40)  # Into the allocated space.
    later = after_a_crash(path, tmp_path / "later")
    journal.close()
    for crashed, count in ((left, 60), (later, 100)):
        again, state = opened(crashed)
        assert list(state.entities[1].entries) == list(range(1, count + 1))
        fill(again, count + 1, 40)
        again.close()
        last, state = opened(crashed)
        assert len(state.entities[1].entries) == count + 40
        last.close()


def test_a_loop_leaves_the_extension_to_the_writer_thread(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path / "bus.db")
    journal.append(1, [Declared(0, 1, 0, "orders", 1, {})], True)
    quick = []
    for number in range(1, 40):
        quick.append(journal.is_quick)
        before = (tmp_path / "bus.db-wal").stat().st_size
        fill(journal, number, 1)
        made = (tmp_path / "bus.db-wal").stat().st_size - before > STEP_BYTES // 2
        assert made is not quick[-1]
    assert quick.count(False) == 1
    journal.close()


def test_a_few_messages_need_no_preallocation(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path / "bus.db")
    journal.append(1, [Declared(0, 1, 0, "orders", 1, {})], True)
    assert (tmp_path / "bus.db-wal").stat().st_size < BEGIN_BYTES
    journal.close()


def test_it_grows_in_steps_up_to_its_bound(tmp_path: Path) -> None:
    log = tmp_path / "x-wal"
    log.write_bytes(b"content")
    space = WalPreallocation(str(tmp_path / "x"), CHECKPOINT_BYTES)
    assert not space.is_due(BEGIN_BYTES - 1)
    sizes = set()
    for used in range(BEGIN_BYTES, CHECKPOINT_BYTES, 100_000):
        if space.is_due(used):
            space.extend(used)
        sizes.add(log.stat().st_size)
        assert log.stat().st_size > used or log.stat().st_size == CHECKPOINT_BYTES
    assert max(sizes) == CHECKPOINT_BYTES
    assert len(sizes) <= CHECKPOINT_BYTES // (STEP_BYTES // 2)
    assert log.read_bytes().rstrip(b"\0") == b"content"


def test_what_cannot_be_made_longer_stays_as_it_is(tmp_path: Path) -> None:
    space = WalPreallocation(str(tmp_path / "missing" / "x"), CHECKPOINT_BYTES)
    space.extend(BEGIN_BYTES)
    assert not space.is_due(CHECKPOINT_BYTES), "it is not tried again"
    assert list(tmp_path.iterdir()) == []
