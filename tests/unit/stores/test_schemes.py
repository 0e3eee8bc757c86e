"""The table of store schemes: a row is all that the rest of the package has to know of a store."""

import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from unibus.bus.management.jobs.job_file import path_of
from unibus.bus.store_url import owned_file, url_of
from unibus.cli.connection.bus_option import store_url
from unibus.cli.local.read_only import reading
from unibus.clock import SYSTEM_CLOCK
from unibus.errors import StoreBusy, StoreUnavailable, UsageError
from unibus.stores import schemes
from unibus.stores.inspection.repair import check, repair
from unibus.stores.opening import open_store
from unibus.stores.schemes import InspectedFiles, JournalSettings, StoreScheme, open_history, open_reader
from unibus.stores.seam.journal import Journal
from unibus.stores.seam.store_view import HistoryReader, StoreView
from unibus.stores.sqlite.history import SqliteHistory
from unibus.stores.sqlite.inspection import SqliteFiles, write_store
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.stores.sqlite.reader import SqliteReader
from unibus.sync import MessageBus


def make_journal(path: str, settings: JournalSettings) -> Journal:
    return SqliteJournal(f"{path}.kept", domain=settings.domain)


def make_reader(path: str, now_ns: Callable[[], int]) -> StoreView:
    return SqliteReader(f"{path}.kept", now_ns)


def make_history(path: str) -> HistoryReader:
    return SqliteHistory(f"{path}.kept")


def make_file_journal(path: str, settings: JournalSettings) -> Journal:
    return SqliteJournal(path, domain=settings.domain)


def copy_aside(path: str, work: str) -> str:
    return str(shutil.copy(path, f"{work}/aside"))


PLANTED_FILE = StoreScheme(
    "planted-file",
    "planted-file:///bed.db",
    "a store of this test in a file",
    make_file_journal,
    kept_in="file",
    inspection=InspectedFiles(SqliteFiles, write_store, copy=copy_aside),
)
PLANTED = StoreScheme(
    "planted",
    "planted:///bed",
    "a store of this test",
    make_journal,
    aliases=("sown",),
    kept_in="bed",
    lock_beside=lambda path: f"{path}.kept",
    reader=make_reader,
    history=make_history,
)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemes, "STORE_SCHEMES", [*schemes.STORE_SCHEMES, PLANTED, PLANTED_FILE])


class NoTimers:
    """Nothing is scheduled in these tests."""

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Never."""

    def stop(self) -> None:
        """There is nothing to stop."""


@pytest.mark.usefixtures("planted")
def test_a_planted_row_is_opened_and_read_beside_its_owner(tmp_path: Path) -> None:
    url = f"planted:///{tmp_path}/bed"
    with MessageBus(f"{url}?domain=garden") as bus:
        bus.send("q", 1)
        reader = open_reader(url, time.time_ns)
        assert [info.name for info in reader.entities()] == ["q"]
        reader.close()
        history = open_history(url)
        assert history.domain == "garden"
        history.close()
        with reading(url) as seen:  # What `unibus peek` reads with.
            assert [info.active for info in seen.entities()] == [1]
    open_store(f"sown:///{tmp_path}/bed", SYSTEM_CLOCK, NoTimers()).close()


@pytest.mark.usefixtures("planted")
def test_a_planted_row_is_known_wherever_a_url_is_looked_at(tmp_path: Path) -> None:
    url = f"planted:///{tmp_path}/bed"
    assert url_of(url) == url
    assert owned_file(url) == f"{tmp_path}/bed.kept"
    assert path_of(url) == f"{tmp_path}/bed.jobs.json"
    assert store_url(url, makes=True) == url
    with pytest.raises(StoreUnavailable, match=r"bed .* does not exist"):
        store_url(url)
    with pytest.raises(UsageError, match="names no bed") as caught:
        open_reader("planted://host/bed")
    assert caught.value.hint.endswith("or planted:////host/bed for /host/bed")
    with pytest.raises(UsageError, match="names no bed") as caught:
        open_reader("planted:///")
    assert caught.value.hint == "write planted:///bed, or planted:////absolute/bed"


@pytest.mark.usefixtures("planted")
def test_a_planted_row_is_known_to_capture_and_pipeline(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from unibus.capture.child import capture_folder
    from unibus.capture.sources import open_source
    from unibus.pipeline.connector.options import absolute

    url = f"planted:///{tmp_path}/bed"
    with MessageBus(url) as bus:
        bus.send("q", 1)
    assert capture_folder(f"{url}?capture={tmp_path}/lake") == f"{tmp_path}/lake"
    source = open_source(url)
    assert source.last() > 0
    source.close()
    assert absolute("planted:///bed") == f"planted:///{Path.cwd()}/bed"


@pytest.mark.usefixtures("planted", "log_only")
def test_a_planted_row_is_checked_and_repaired(tmp_path: Path) -> None:
    url, new = f"planted-file:///{tmp_path}/bed.db", f"planted-file:///{tmp_path}/new.db"
    with MessageBus(f"{url}?domain=garden") as bus:
        bus.create_queue("q")
        for body in ("a", "b", "c"):
            bus.send("q", body)
        with pytest.raises(StoreBusy):  # Its row does not say that a check works beside the owner.
            check(url)
    assert check(url).ok
    with closing(apsw.Connection(f"{tmp_path}/bed.db")) as connection:
        connection.execute("UPDATE log SET records = zeroblob(length(records)) WHERE seq = 3")  # "b"
    damaged = check(url)
    assert (damaged.ok, damaged.url) == (False, f"planted-file:///{tmp_path}/bed.db")
    assert repair(url, new).findings == damaged.findings
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bed.db", "bed.db.lock", "new.db"]
    assert check(new).ok
    with MessageBus(new) as bus:
        assert [message.body for message in bus.peek("q", 10)] == ["a", "c"]


@pytest.mark.usefixtures("planted")
def test_a_repair_keeps_to_the_scheme_of_the_original(tmp_path: Path) -> None:
    url = f"planted-file:///{tmp_path}/bed.db"
    with MessageBus(url) as bus:
        bus.send("q", 1)
    with pytest.raises(UsageError, match="another scheme") as caught:
        repair(url, f"sqlite:///{tmp_path}/new.db")
    assert caught.value.hint == "name a new planted-file store, or a path"
    with pytest.raises(UsageError, match="names no store in files") as unread:
        check(f"planted:///{tmp_path}/bed")  # A row without `inspection`.
    assert unread.value.hint == "write a path, sqlite:///file.db or jsonfile:///folder or planted-file:///bed.db"


@pytest.mark.usefixtures("planted")
def test_errors_name_a_planted_row() -> None:
    with pytest.raises(UsageError, match="carrier-pigeon") as caught:
        open_store("carrier-pigeon://loft", SYSTEM_CLOCK, NoTimers())
    assert "planted:///bed (a store of this test)" in caught.value.hint
    with pytest.raises(StoreUnavailable) as unread:
        open_history("jsonfile:///folder")
    assert "sqlite://, planted://" in unread.value.hint


def test_without_its_row_no_part_knows_the_scheme() -> None:
    with pytest.raises(UsageError, match="unknown store scheme planted"):
        open_store("planted:///bed", SYSTEM_CLOCK, NoTimers())
    assert owned_file("planted:///bed") == path_of("planted:///bed") == ""
    with pytest.raises(UsageError, match="neither a store nor a server"):
        store_url("planted:///bed")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://host/bus.db", "sqlite:///a%00b"])
@pytest.mark.parametrize("read", [open_reader, open_history])
def test_what_cannot_be_opened_cannot_be_read(url: str, read: Callable[[str], object]) -> None:
    with pytest.raises(UsageError, match="names no file"):
        read(url)


def test_no_two_rows_share_a_name() -> None:
    names = [name for row in schemes.STORE_SCHEMES for name in (row.name, *row.aliases)]
    assert len(set(names)) == len(names)
    assert not set(names) & set(schemes.PLANNED)
