"""A log that lost its end is refused wherever something proves it; a crash alone never looks like that."""

import shutil
from pathlib import Path

import apsw
import pytest

from tests.crash.power import MACHINES, StillTimers
from tests.crash.workload import Worker
from unibus.clock import SYSTEM_CLOCK
from unibus.errors import BusError, StoreDamaged
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.files.disk import RealFiles
from unibus.stores.jsonfile.state import read_state, write_state
from unibus.stores.opening import open_store
from unibus.stores.seam.log_end import REACHED, check_end
from unibus.sync import MessageBus

KINDS = ("sqlite", "jsonfile")
kinds = pytest.mark.parametrize("kind", KINDS)
MESSAGES = 6


class Place:
    """A store in a folder, and what a program that is not unibus may do to its files."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.path = folder / "bus"
        self.url = f"{kind}:///{self.path}"

    def fill(self, count: int = MESSAGES) -> None:
        with MessageBus(self.url) as bus:
            for number in range(count):
                bus.send("orders", number)

    def bodies(self) -> list[object]:
        with MessageBus(self.url) as bus:
            return [message.body for message in bus.peek("orders", 100)]

    def killed_copy(self, folder: Path, before: int, after: int) -> "Place":
        """What a killed process leaves: so many messages were there when it opened the store, and it sent some more."""
        self.fill(before)
        store = open_store(self.url, SYSTEM_CLOCK, StillTimers())
        assert isinstance(store, EmbeddedStore)
        with MessageBus(store) as bus:
            for number in range(before, before + after):
                bus.send("orders", number)
            copy = Place(self.kind, folder)
            if self.kind == "jsonfile":
                shutil.copytree(self.path, copy.path)
            else:
                for ending in ("", "-wal"):
                    shutil.copyfile(f"{self.path}{ending}", f"{copy.path}{ending}")
        return copy

    def cut(self, changes: int) -> None:
        """Take the last changes from the log, at the end of a group."""
        if self.kind == "jsonfile":
            segment = max((self.path / "wal").iterdir())
            lines = segment.read_bytes().splitlines(keepends=True)
            segment.write_bytes(b"".join(lines[:-changes]))
        else:
            database = apsw.Connection(str(self.path))
            database.execute("DELETE FROM log WHERE last > (SELECT max(last) FROM log) - ?", (changes,))
            database.close()

    def set_reached(self, seq: int | None) -> None:
        """As another version leaves it; None: as one that does not know of it."""
        if self.kind == "jsonfile":
            files = RealFiles()
            state = read_state(files, str(self.path))
            state.reached = seq or 0
            write_state(files, str(self.path), state)
            return
        database = apsw.Connection(str(self.path))
        database.execute("DELETE FROM meta WHERE key = ?", (REACHED,))
        if seq is not None:
            database.execute("INSERT INTO meta VALUES (?, ?)", (REACHED, seq))
        database.close()


@pytest.fixture
def place(kind: str, tmp_path: Path) -> Place:
    return Place(kind, tmp_path)


@pytest.mark.usefixtures("log_only")
@kinds
@pytest.mark.parametrize("changes", [1, 3])
def test_a_log_that_was_cut_after_an_orderly_close_is_damaged(place: Place, changes: int) -> None:
    place.fill()
    place.cut(changes)
    missing = "1 change is missing" if changes == 1 else f"{changes} changes are missing"
    with pytest.raises(StoreDamaged, match=missing) as caught:
        place.bodies()
    assert str(place.path) in caught.value.what


@pytest.mark.usefixtures("log_only")
@kinds
def test_an_empty_log_after_an_orderly_close_is_damaged(place: Place) -> None:
    place.fill()
    place.cut(MESSAGES + 1)  # The queue was declared, too.
    with pytest.raises(StoreDamaged, match=f"{MESSAGES + 1} changes are missing"):
        place.bodies()


@pytest.mark.usefixtures("log_only")
@kinds
def test_what_was_there_at_the_last_opening_must_still_be_there_after_a_kill(place: Place, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    copy = place.killed_copy(tmp_path / "copy", before=4, after=3)
    copy.cut(4)  # The three of the killed process, and one of before.
    with pytest.raises(StoreDamaged, match="1 change is missing"):
        copy.bodies()


@kinds
def test_what_a_killed_process_wrote_can_be_cut_unnoticed(place: Place, tmp_path: Path) -> None:
    """A limit that the guide states: nothing proves that those changes were ever there."""
    (tmp_path / "copy").mkdir()
    copy = place.killed_copy(tmp_path / "copy", before=4, after=3)
    copy.cut(2)
    assert copy.bodies() == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("log_only")
@kinds
@pytest.mark.parametrize("seq", [None, 0, 2])
def test_a_store_of_another_version_opens(place: Place, seq: int | None) -> None:
    """One that does not know the number leaves none, or one that is too small."""
    place.fill()
    place.set_reached(seq)
    assert place.bodies() == list(range(MESSAGES))
    place.cut(1)
    with pytest.raises(StoreDamaged):
        place.bodies()  # Opening and closing it has set the number.


def test_a_snapshot_of_changes_that_the_log_does_not_have_is_damage() -> None:
    check_end("bus.db", 7, 0, 7)
    with pytest.raises(StoreDamaged, match=r"bus\.db.*the snapshot has changes up to 9: 2 changes are missing"):
        check_end("bus.db", 7, 0, 9)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_copy_of_an_open_file_without_its_log_is_the_store_of_the_last_checkpoint(
    place: Place, tmp_path: Path
) -> None:
    """The other limit that the guide states: the copy contradicts itself nowhere."""
    (tmp_path / "copy").mkdir()
    copy = place.killed_copy(tmp_path / "copy", before=4, after=3)
    Path(f"{copy.path}-wal").unlink()
    assert copy.bodies() == [0, 1, 2, 3]


@kinds
def test_a_cut_while_opening_what_was_never_synced_is_no_damage(kind: str) -> None:
    """The number must not be on disk before the changes that it counts: those are only in the cache of the kernel."""
    for step in range(1, 40):
        machine = MACHINES[kind](f"reached {step}")
        machine._snapshot_every = 10**6
        store = machine.start()
        worker = Worker(store, machine.ledger, "w")
        worker.prepare()
        machine.work(worker, 20)
        machine.disk.kill()
        machine.release(store)
        machine.disk.cut_at(step)
        try:
            opened = machine.start()
        except StoreDamaged:
            raise
        except BusError:
            opened = None
        machine.disk.heal()
        if opened is not None:
            machine.disk.cut()
            machine.release(opened)
        machine.start().close()
