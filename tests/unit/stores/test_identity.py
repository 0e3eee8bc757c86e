"""The identity of a store: drawn once, kept in its files; and its incarnation: drawn at each opening."""

import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.journal import Journal
from unibus.stores.seam.store import StoreIdentity
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.sync import MessageBus
from unibus.testing.clock.virtual_clock import VirtualClock

WRITTEN = Path(__file__).parents[2] / "contract" / "written"


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    with VirtualClock() as clock:
        yield clock


@pytest.fixture(params=["sqlite", "jsonfile"])
def journal_at(request: pytest.FixtureRequest) -> Callable[[Path], Journal]:
    if request.param == "sqlite":
        return lambda folder: SqliteJournal(str(folder / "store.db"))
    return lambda folder: JsonFileJournal(str(folder / "store"))


def identity(journal: Journal, clock: VirtualClock) -> StoreIdentity:
    store = EmbeddedStore(journal, clock, clock.timers(lambda: True))
    found = store.identity
    assert store.health().identity == found
    assert store.check() == []
    store.close()
    assert bytes.fromhex(found.store)
    assert bytes.fromhex(found.incarnation)
    return found


def test_it_is_kept_by_the_files_and_by_a_copy_of_them(
    journal_at: Callable[[Path], Journal], tmp_path: Path, clock: VirtualClock
) -> None:
    here, there, other = (tmp_path / name for name in ("here", "there", "other"))
    here.mkdir()
    other.mkdir()
    first = identity(journal_at(here), clock)
    shutil.copytree(here, there)
    found = [identity(journal_at(each), clock) for each in (here, there, here)]
    assert {each.store for each in found} == {first.store}
    assert len({first.incarnation, *(each.incarnation for each in found)}) == 4
    assert identity(journal_at(other), clock).store != first.store


def test_in_memory_every_store_is_another_one(clock: VirtualClock) -> None:
    found = [identity(MemoryJournal(), clock) for _ in range(2)]
    assert found[0].store != found[1].store


@pytest.mark.parametrize("name", ["sqlite", "jsonfile"])
def test_a_store_of_the_version_before_gets_one_at_its_first_opening(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(WRITTEN / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    url = f"sqlite:///{tmp_path}/store.db" if name == "sqlite" else f"jsonfile:///{tmp_path}/store"
    found = []
    for _ in range(2):
        with MessageBus(url) as bus:
            health = bus.health_check().store
            assert health is not None
            assert health.identity is not None
            found.append(health.identity)
    assert found[0].store
    assert found[0].store == found[1].store
    assert found[0].incarnation != found[1].incarnation


def test_health_says_whether_the_store_has_stopped(clock: VirtualClock) -> None:
    store = EmbeddedStore(MemoryJournal(), clock, clock.timers(lambda: True))
    assert not store.health().stopped
    store.close()
    assert store.health().stopped
