"""The index of history: what it finds is what reading all of history finds, also over crashes and forgetting."""

import random
import shutil
from pathlib import Path

import pytest

from unibus.core.lifecycle.events import is_about
from unibus.core.lifecycle.state.changes import Change, Completed, Declared, MessageRef, Processed, Sent
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.seam.recovery import recover
from unibus.stores.sql import trace_index
from unibus.stores.sql.trace_index import crc_of, find
from unibus.stores.sqlite.journal import SqliteJournal


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_index, "BLOCK_CHANGES", 50)


class Writer:
    """Writes random groups about a few messages, and forgets what it opened before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._chance = random.Random(7)
        self.journal = self._open()
        self._sequence = 0
        if self._seq == 0:
            self._append([Declared(0, 1, 0, "orders", 1, {})])

    def _open(self) -> SqliteJournal:
        journal, state = SqliteJournal(str(self._path), history_bytes=0), StoreState(10**9)
        recover(journal, state)
        self._seq = int(state.seq)
        return journal

    def again(self) -> None:
        self.journal.close()
        self.journal = self._open()

    def _append(self, changes: list[Change]) -> None:
        self.journal.append(self._seq + 1, changes, False)
        self._seq += len(changes)

    def write(self, groups: int) -> None:
        for _ in range(groups):
            self._append([change for _ in range(self._chance.randint(1, 5)) for change in self._life()])

    def _life(self) -> list[Change]:
        self._sequence += 1
        who = MessageRef(f"m{self._chance.randint(1, 20)}", 1)
        return [
            Sent(0, 1, self._sequence, who, 50, 0, 0, None, b"x"),
            Processed(0, 1, self._sequence, "key"),
            Completed(0, 1, self._sequence, who, 1, 1, 1),
        ][:: self._chance.choice((1, 2))]

    def check(self) -> None:
        changes = list(self.journal.changes_after(0))
        for number in range(22):
            expected = [seq for seq, change in changes if is_about(change, f"m{number}")]
            assert self.journal.find(f"m{number}") == expected


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "bus.db")


def test_it_finds_what_reading_everything_finds(writer: Writer) -> None:
    for _ in range(8):
        writer.write(12)
        writer.check()
    writer.journal.close()


def test_an_opening_forgets_nothing(writer: Writer) -> None:
    for _ in range(12):
        writer.write(5)
        writer.again()
        writer.write(5)
        writer.again()
        writer.check()
        writer.write(5)
        writer.check()
    writer.journal.close()


def test_a_block_that_an_earlier_life_began_is_written_whole(writer: Writer) -> None:
    for _ in range(6):
        writer.write(3)
        writer.again()
        writer.write(12)  # No search before the block is due.
        writer.check()
    writer.journal.close()


def test_a_crash_forgets_nothing(writer: Writer, tmp_path: Path) -> None:
    for number in range(5):
        writer.write(9)
        left = tmp_path / f"left{number}"
        left.mkdir()
        for file in tmp_path.glob("bus.db*"):
            if not file.name.endswith(".lock"):
                shutil.copy(file, left / file.name)
        found = Writer(left / "bus.db")
        found.check()
        found.journal.close()
    writer.journal.close()


def test_what_history_forgets_the_index_forgets(writer: Writer) -> None:
    writer.write(60)
    before = len(list(writer.journal.changes_after(0)))
    blocks = writer.journal._connection.execute("SELECT count(*) FROM trace_blocks").get
    writer.journal.trim(0, writer.journal.last // 2)
    assert len(list(writer.journal.changes_after(0))) < before
    writer.check()
    left = writer.journal._connection.execute("SELECT count(*), min(first) FROM trace_blocks").fetchone()
    rows = writer.journal._connection.execute("SELECT count(DISTINCT first), min(first) FROM trace_index").fetchone()
    assert left == rows
    assert 0 < left[0] < blocks
    writer.journal.close()


def test_a_crc_is_found_only_where_a_pair_begins() -> None:
    crc = crc_of("m")
    data = b"".join(number.to_bytes(4, "little") for number in (7, crc, crc, 3, crc, crc))
    assert list(find(100, data, crc)) == [103, 100 + crc]
