"""A path that is refused is as it was: no lock file, no byte and no mode changed. A disk that fails keeps no lock."""

import errno
import hashlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from unibus.capture import child as capture_child
from unibus.errors import BusError, StoreDamaged, StoreFailed, StoreFull, StoreUnavailable, StoreVersion, UsageError
from unibus.stores.files import disk as jsonfile_files
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.sqlite import place as sqlite_place
from unibus.stores.sqlite.checkpoints import Checkpoints
from unibus.stores.sqlite.file import APPLICATION_ID, open_file
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.sync import MessageBus

SCHEMES = pytest.mark.parametrize("scheme", ["sqlite", "jsonfile"])


def picture(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every file with its mode, its time of change, and its content."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in folder.rglob("*")
    }


def text(path: Path) -> None:
    path.write_text("one line of a file that is no database\n" * 100)
    path.chmod(0o640)


def foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE users (name)")
    connection.commit()
    connection.close()


def foreign_wal(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("CREATE TABLE users (name)")
    connection.commit()
    connection.close()


def newer(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE t (x)")
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", 999)
    connection.close()


def pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (text, StoreDamaged),
        (foreign, StoreUnavailable),
        (foreign_wal, StoreUnavailable),
        (newer, StoreVersion),
        (pipe, StoreUnavailable),
        (Path.mkdir, StoreUnavailable),
    ],
    ids=lambda value: value.__name__,
)
def test_a_file_that_is_not_ours_stays_as_it_is(
    tmp_path: Path, make: Callable[[Path], None], kind: type[BusError]
) -> None:
    make(tmp_path / "theirs")
    before = picture(tmp_path)
    with pytest.raises(kind) as caught:
        MessageBus(f"sqlite:///{tmp_path}/theirs")
    assert caught.value.hint
    assert picture(tmp_path) == before


def test_a_database_that_its_program_has_open_stays_as_it_is(tmp_path: Path) -> None:
    # All of it is still in the write-ahead log: the file itself looks like an empty database.
    connection = apsw.Connection(str(tmp_path / "theirs"))
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE users (name)")
    with pytest.raises(StoreUnavailable, match="not one of unibus"):
        MessageBus(f"sqlite:///{tmp_path}/theirs")
    assert {path.name for path in tmp_path.iterdir()} == {"theirs", "theirs-wal", "theirs-shm"}
    connection.close()


def test_a_store_whose_first_page_is_only_in_the_log_is_ours(tmp_path: Path) -> None:
    # As a crash leaves it in the middle of a checkpoint: page 1 is torn in the file, and whole in the log.
    (tmp_path / "copy").mkdir()
    connection = open_file(str(tmp_path / "bus.db"), "local", None, False)
    for name in ("bus.db", "bus.db-wal"):
        (tmp_path / "copy" / name).write_bytes((tmp_path / name).read_bytes())
    connection.close()
    page = bytearray((tmp_path / "copy" / "bus.db").read_bytes())
    page[100:4096] = b"\xff" * (4096 - 100)
    (tmp_path / "copy" / "bus.db").write_bytes(page)
    with MessageBus(tmp_path / "copy" / "bus.db") as copy:
        assert copy.send("q", 1).sequence == 1


def damaged_state(folder: Path) -> None:
    (folder / "state.json").write_text("{")


def foreign_state(folder: Path) -> None:
    (folder / "state.json").write_text('{"unibus": "something"}')


def newer_state(folder: Path) -> None:
    (folder / "state.json").write_text('{"unibus": "store", "format": 999}')


def photos(folder: Path) -> None:
    (folder / "cat.jpeg").write_bytes(b"\xff\xd8")


def log_only(folder: Path) -> None:
    (folder / "wal").mkdir()
    (folder / "wal" / "000000000001.jsonl").write_text("")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (damaged_state, StoreDamaged),
        (foreign_state, StoreUnavailable),
        (newer_state, StoreVersion),
        (photos, StoreUnavailable),
        (log_only, StoreDamaged),
    ],
    ids=lambda value: value.__name__,
)
def test_a_folder_that_is_not_ours_stays_as_it_is(
    tmp_path: Path, make: Callable[[Path], None], kind: type[BusError]
) -> None:
    (tmp_path / "theirs").mkdir(mode=0o755)
    make(tmp_path / "theirs")
    before = picture(tmp_path)
    with pytest.raises(kind) as caught:
        MessageBus(f"jsonfile:///{tmp_path}/theirs")
    assert caught.value.hint
    assert picture(tmp_path) == before


@SCHEMES
@pytest.mark.parametrize("query", ["durability=D3", "durability=x", "max_queues=-1", "history_age=x", "nonsense=1"])
def test_a_wrong_option_makes_nothing(tmp_path: Path, scheme: str, query: str) -> None:
    with pytest.raises(UsageError):
        MessageBus(f"{scheme}:///{tmp_path}/bus?{query}")
    assert list(tmp_path.iterdir()) == []


@SCHEMES
def test_a_path_that_no_file_can_have_is_said(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(UsageError):
        MessageBus(f"{scheme}:///{tmp_path}/a%00b")
    with pytest.raises(StoreUnavailable):
        MessageBus(f"{scheme}:///{tmp_path}/{'x' * 300}")


# A disk that fails


def refuse(*arguments: object, **keywords: object) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_file_that_cannot_be_made_keeps_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_place, "make_file", refuse)
        with pytest.raises(StoreUnavailable, match="error") as caught:
            MessageBus(tmp_path / "bus.db")
        assert isinstance(caught.value.__cause__, OSError)
    MessageBus(tmp_path / "bus.db").close()


@pytest.mark.parametrize("call", ["create", "write", "sync", "sync_folder", "rename", "make_folder", "list"])
def test_a_folder_that_cannot_be_opened_keeps_no_lock(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bus").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(jsonfile_files.RealFiles, call, refuse)
        if call == "make_folder":
            patch.setattr(jsonfile_files.os, "mkdir", refuse)
        with pytest.raises(StoreUnavailable) as caught:
            MessageBus(f"jsonfile:///{tmp_path}/bus")
        assert isinstance(caught.value.__cause__, OSError)
    MessageBus(f"jsonfile:///{tmp_path}/bus").close()


class Broken:
    """A connection whose last write fails."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def close(self) -> None:
        self._connection.close()
        raise apsw.IOError("disk I/O error")


def test_a_file_that_cannot_be_closed_is_free_and_the_error_is_ours(tmp_path: Path) -> None:
    journal = SqliteJournal(str(tmp_path / "bus.db"))
    journal._connection = Broken(journal._connection)  # type: ignore[assignment]
    with pytest.raises(StoreFailed) as caught:
        journal.close()
    assert isinstance(caught.value.__cause__, apsw.IOError)
    MessageBus(tmp_path / "bus.db").close()


def test_a_folder_that_cannot_be_closed_is_free_and_the_error_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = MessageBus(f"jsonfile:///{tmp_path}/bus")
    with monkeypatch.context() as patch:
        patch.setattr(jsonfile_files.RealFiles, "close", refuse)
        with pytest.raises(StoreFailed):
            bus.close()
    MessageBus(f"jsonfile:///{tmp_path}/bus").close()


@pytest.mark.parametrize("error", [apsw.FullError("full"), apsw.IOError("disk I/O error")])
def test_a_store_that_cannot_be_read_is_not_available(
    tmp_path: Path, error: apsw.Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`StoreFailed` would say that a call has an unknown outcome; there was no call."""

    def fail(*arguments: object, **named: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "run", fail)
        with pytest.raises(StoreUnavailable) as caught:
            MessageBus(tmp_path / "bus.db")
    assert isinstance(caught.value.__cause__, (StoreFailed, StoreFull))
    assert caught.value.__cause__.__cause__ is error
    MessageBus(tmp_path / "bus.db").close()


def test_the_error_of_an_open_is_not_hidden_by_that_of_the_close_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_close = JsonFileJournal.close

    def load_snapshot(journal: JsonFileJournal, state: object) -> None:
        raise StoreDamaged("the first error")

    def close(journal: JsonFileJournal) -> None:
        really_close(journal)
        raise StoreFailed("the second error")

    monkeypatch.setattr(JsonFileJournal, "load_snapshot", load_snapshot)
    monkeypatch.setattr(JsonFileJournal, "close", close)
    with pytest.raises(StoreDamaged, match="the first error"):
        MessageBus(f"jsonfile:///{tmp_path}/bus")


def test_a_capture_that_cannot_be_started_leaves_the_store_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    with monkeypatch.context() as patch:
        patch.setattr(capture_child.subprocess, "Popen", refuse)
        with pytest.raises(StoreUnavailable, match="capture"):
            MessageBus(f"sqlite:///{tmp_path}/bus.db?capture={tmp_path}/captured")
    MessageBus(tmp_path / "bus.db").close()
