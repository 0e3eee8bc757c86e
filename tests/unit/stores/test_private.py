"""Messages are for their owner's eyes: what unibus makes is private, and what exists keeps its mode."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from unibus.stores.files import private
from unibus.stores.schemes import open_history
from unibus.sync import MessageBus

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes mean nothing there")


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in folder.rglob("*")}


def check_private(folder: Path, least: set[str]) -> None:
    found = modes(folder)
    assert least <= set(found)
    for name, mode in found.items():
        assert mode == (0o700 if (folder / name).is_dir() else 0o600), name


def test_a_sqlite_store_is_private(tmp_path: Path, umask: int) -> None:
    with MessageBus(tmp_path / "bus.db") as bus:
        bus.send("q", 1)
        history = open_history(f"sqlite:///{tmp_path}/bus.db")
        history.show_cursor("audit", 1)
        history.close()
        beside = {"bus.db", "bus.db-wal", "bus.db-shm", "bus.db.lock", "bus.db-cursors", "bus.db-cursors/audit"}
        check_private(tmp_path, beside)


def test_a_folder_of_json_files_is_private(tmp_path: Path, umask: int) -> None:
    url = f"jsonfile:///{tmp_path}/bus"
    for number in range(2):  # The second one replaces what the first one made.
        with MessageBus(url) as bus:
            bus.send("q", number)
            bus.move_cursor("audit", 1)
    least = {"bus", "bus/state.json", "bus/state.json.lock", "bus/wal", "bus/entities", "bus/cursors.json"}
    check_private(tmp_path, least)


@pytest.mark.parametrize("name", ["bus.db", "bus.db-wal"])
def test_a_sqlite_file_that_exists_keeps_its_mode(tmp_path: Path, name: str) -> None:
    MessageBus(tmp_path / "bus.db").close()
    (tmp_path / "bus.db").chmod(0o640)
    with MessageBus(tmp_path / "bus.db") as bus:
        bus.send("q", 1)
        assert modes(tmp_path)[name] == 0o640  # SQLite gives its log the mode of the file.


def test_a_json_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    url = f"jsonfile:///{tmp_path}/bus"
    MessageBus(url).close()
    (tmp_path / "bus").chmod(0o750)
    for path in (tmp_path / "bus" / "state.json", *(tmp_path / "bus" / "wal").iterdir()):
        path.chmod(0o640)
    with MessageBus(url) as bus:
        bus.send("q", 1)
    found = modes(tmp_path)
    assert found["bus"] == 0o750
    assert found["bus/state.json"] == 0o640
    assert {mode for name, mode in found.items() if name.startswith("bus/wal/")} == {0o640}


def test_a_file_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert private.make_file(str(path))
    path.write_text("x")
    assert not private.make_file(str(path))
    assert path.read_text() == "x"
