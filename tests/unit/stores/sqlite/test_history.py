"""How much history a SQLite journal keeps."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from unibus.core.lifecycle.state.changes import Declared, MessageRef, Sent
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import StoreBusy
from unibus.stores.seam.recovery import recover
from unibus.stores.sqlite import journal as sqlite
from unibus.stores.sqlite.journal import SqliteJournal

SECOND = 1_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "bus.db")


@pytest.fixture
def journal(path: str) -> Iterator[SqliteJournal]:
    journal = SqliteJournal(path, history_age_s=100, history_bytes=10_000)
    recover(journal, StoreState(0))
    journal.append(1, [Declared(0, 1, 0, "orders", 1, {})], True)
    yield journal
    journal.close()


def fill(journal: SqliteJournal, count: int, at_ns: int = 0, size: int = 10) -> None:
    """One group per message, the first of them with seq 2."""
    for number in range(1, count + 1):
        sent = Sent(at_ns + number * SECOND, 1, number, MessageRef(f"m{number}", size), 50, 0, 0, None, b"x" * size)
        journal.append(number + 1, [sent], False)


def seqs(journal: SqliteJournal) -> list[int]:
    return [seq for seq, _ in journal.changes_after(0)]


def test_what_is_too_old_goes_as_soon_as_recovery_does_not_need_it(journal: SqliteJournal) -> None:
    fill(journal, 20)
    journal.trim(110 * SECOND, 0)
    assert seqs(journal) == list(range(1, 22)), "nothing before the snapshot may go"
    journal.trim(110 * SECOND, 21)
    assert seqs(journal) == list(range(11, 22))
    assert journal.oldest == 11


def test_what_is_too_much_goes_from_the_old_end(journal: SqliteJournal) -> None:
    fill(journal, 20, size=1_000)
    journal.trim(20 * SECOND, 21)
    kept = seqs(journal)
    assert kept == list(range(kept[0], 22))
    assert kept[0] > 10
    assert journal.size_bytes <= 10_000


def test_nothing_after_the_snapshot_goes_even_if_it_is_too_much(journal: SqliteJournal) -> None:
    fill(journal, 20, size=1_000)
    journal.trim(1_000 * SECOND, 5)
    assert seqs(journal)[0] == 6


def test_cursors_stay_where_they_were_when_history_goes(journal: SqliteJournal) -> None:
    fill(journal, 20)
    assert journal.cursors({"slow": 4, "quick": 21}) == {"slow": 4, "quick": 21}
    journal.trim(110 * SECOND, 21)
    assert (journal.oldest, journal.cursors()) == (11, {"slow": 4, "quick": 21})


def test_cursors_and_sizes_survive_a_restart(journal: SqliteJournal, path: str) -> None:
    fill(journal, 3)
    journal.cursors({"capture": 2})
    size = journal.size_bytes
    journal.close()
    again = SqliteJournal(path)
    recover(again, StoreState(0))
    assert again.cursors() == {"capture": 2}
    assert again.size_bytes == size
    again.close()


def test_changes_are_read_from_the_middle_of_a_group(journal: SqliteJournal) -> None:
    fill(journal, 5)
    journal.append(7, [change for _, change in journal.changes_at([2, 3, 4])], False)
    assert [seq for seq, _ in journal.changes_after(7)] == [8, 9]
    assert (journal.oldest, journal.last) == (1, 9)


def test_the_second_owner_is_told_who_the_first_one_is(journal: SqliteJournal, path: str) -> None:
    with pytest.raises(StoreBusy, match=r"process \d+"):
        SqliteJournal(path)


def test_much_is_forgotten_in_steps(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "TRIM_ROWS", 4)
    fill(journal, 20)
    steps = [journal.trim(110 * SECOND, 21) for _ in range(4)]
    assert steps == [True, True, False, False]
    assert seqs(journal) == list(range(11, 22))
    assert journal.oldest == 11
