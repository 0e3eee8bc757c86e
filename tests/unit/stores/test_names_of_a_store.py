"""One store, many names: every name of a file or folder leads to the same owner, or is rejected."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from unibus.bus.timers import ThreadTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.errors import StoreBusy, StoreUnavailable
from unibus.stores.opening import open_store
from unibus.stores.schemes import open_history, open_reader
from unibus.stores.seam.store import Store
from unibus.stores.sqlite.outside_cursors import shown_cursors
from unibus.sync import MessageBus

SCHEMES = pytest.mark.parametrize("scheme", ["sqlite", "jsonfile"])


@dataclass
class Names:
    """Two names of one store. It is made through the alias, unless it exists before."""

    real: str
    alias: str
    cwd: Path
    exists: bool = False


def link_to_the_store(folder: Path) -> Names:
    (folder / "alias").symlink_to(folder / "bus")
    return Names(str(folder / "bus"), str(folder / "alias"), folder, exists=True)


def link_to_folder_above(folder: Path) -> Names:
    (folder / "inner").mkdir()
    (folder / "other").symlink_to(folder / "inner")
    return Names(str(folder / "inner" / "bus"), str(folder / "other" / "bus"), folder)


def link_before_the_file(folder: Path) -> Names:
    (folder / "alias").symlink_to("bus")
    return Names(str(folder / "bus"), str(folder / "alias"), folder)


def link_to_a_link(folder: Path) -> Names:
    (folder / "inner").mkdir()
    (folder / "inner" / "middle").symlink_to("../bus")
    (folder / "alias").symlink_to("inner/middle")
    return Names(str(folder / "bus"), str(folder / "alias"), folder)


def relative(folder: Path) -> Names:
    return Names(str(folder / "bus"), "bus", folder)


def dots(folder: Path) -> Names:
    (folder / "inner").mkdir()
    return Names(str(folder / "bus"), f"{folder}/inner/.././inner/../bus", folder)


def through_root(folder: Path) -> Names:
    return Names(str(folder / "bus"), f"/proc/self/root{folder}/bus", folder)


def through_cwd(folder: Path) -> Names:
    return Names(str(folder / "bus"), "/proc/self/cwd/bus", folder)


CASES: list[Callable[[Path], Names]] = [
    link_to_the_store,
    link_to_folder_above,
    link_before_the_file,
    link_to_a_link,
    relative,
    dots,
    *([through_root, through_cwd] if Path("/proc/self/root").exists() else []),
]

HOLDER = """
import json, os, sys
from unibus.sync import MessageBus
bus = None
for line in sys.stdin:
    command = json.loads(line)
    if command is None:
        bus.close()
    else:
        os.chdir(command["cwd"])
        bus = MessageBus(command["url"])
        bus.send("q", 1)
    print("done", flush=True)
"""


class Elsewhere:
    """Another process, which opens and closes stores on command."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def __call__(self, command: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Elsewhere(process)
        process.communicate()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, Path], Store]:
    def open_here(scheme: str, path: str, cwd: Path) -> Store:
        monkeypatch.chdir(cwd)
        return open_store(f"{scheme}:///{path}", SYSTEM_CLOCK, ThreadTimers(SYSTEM_CLOCK, print))

    return open_here


def locks_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.lock") if not path.is_symlink()]


Opening = Callable[[str, str, Path], Store]


@SCHEMES
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_in_one_process_the_second_name_is_refused(
    tmp_path: Path, scheme: str, case: Callable[[Path], Names], here: Opening
) -> None:
    names = case(tmp_path)
    order = [names.real, names.alias] if names.exists else [names.alias, names.real]
    store = here(scheme, order[0], names.cwd)
    with pytest.raises(StoreBusy, match="this process has it open already"):
        here(scheme, order[1], names.cwd)
    store.close()
    here(scheme, order[1], names.cwd).close()
    assert len(locks_in(tmp_path)) == 1


@pytest.mark.processes
@SCHEMES
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_in_two_processes_the_second_name_is_refused(
    tmp_path: Path, scheme: str, case: Callable[[Path], Names], here: Opening, elsewhere: Elsewhere
) -> None:
    names = case(tmp_path)
    elsewhere({"url": f"{scheme}:///{names.alias}", "cwd": str(names.cwd)})
    with pytest.raises(StoreBusy, match="is in use by process"):
        here(scheme, names.real, names.cwd)
    elsewhere(None)
    store = here(scheme, names.real, names.cwd)
    assert [info.active for info in store.entities().wait()] == [1]
    store.close()
    assert len(locks_in(tmp_path)) == 1


# Hard links: one inode under two real paths


@pytest.mark.parametrize("is_open", [True, False])
def test_a_hard_link_is_refused_by_both_names_until_one_is_gone(tmp_path: Path, is_open: bool, here: Opening) -> None:
    real, alias = tmp_path / "bus.db", tmp_path / "alias.db"
    store = here("sqlite", str(real), tmp_path)
    if not is_open:
        store.close()
    os.link(real, alias)
    for name in (real, alias):
        with pytest.raises(StoreUnavailable, match="2 hard links") as caught:
            here("sqlite", str(name), tmp_path)
        assert caught.value.hint
    assert not (tmp_path / "alias.db.lock").exists()
    store.close()
    alias.unlink()
    here("sqlite", str(real), tmp_path).close()


def test_a_hard_link_of_the_state_of_a_folder_is_refused(tmp_path: Path, here: Opening) -> None:
    here("jsonfile", str(tmp_path / "bus"), tmp_path).close()
    (tmp_path / "copy").mkdir()
    os.link(tmp_path / "bus" / "state.json", tmp_path / "copy" / "state.json")
    for name in ("bus", "copy"):
        with pytest.raises(StoreUnavailable, match="2 hard links"):
            here("jsonfile", str(tmp_path / name), tmp_path)
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["state.json"]


def test_a_file_that_was_renamed_while_it_is_open_is_the_same_file(tmp_path: Path, here: Opening) -> None:
    store = here("sqlite", str(tmp_path / "bus.db"), tmp_path)
    (tmp_path / "bus.db").rename(tmp_path / "moved.db")
    with pytest.raises(StoreBusy, match=r"moved\.db is in use by .*this process"):
        here("sqlite", str(tmp_path / "moved.db"), tmp_path)
    assert not (tmp_path / "moved.db.lock").exists()
    (tmp_path / "moved.db").rename(tmp_path / "bus.db")
    store.close()


@pytest.mark.processes
def test_a_file_under_a_second_mount_is_the_same_file(tmp_path: Path, here: Opening) -> None:
    real, alias = tmp_path / "bus.db", tmp_path / "alias.db"
    store = here("sqlite", str(real), tmp_path)
    alias.touch()
    if os.geteuid() != 0 or subprocess.run(["mount", "--bind", real, alias], capture_output=True).returncode:
        store.close()
        pytest.skip("only root can mount")
    try:
        with pytest.raises(StoreBusy, match="this process has it open already"):
            here("sqlite", str(alias), tmp_path)
    finally:
        subprocess.run(["umount", "-l", alias], check=True)
        store.close()


# Names that lead nowhere


@SCHEMES
def test_a_loop_of_links_is_said_and_nothing_is_made(tmp_path: Path, scheme: str, here: Opening) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(StoreUnavailable, match="symbolic link"):
        here(scheme, str(tmp_path / "a"), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


@SCHEMES
def test_a_link_into_a_folder_that_does_not_exist_is_said(tmp_path: Path, scheme: str, here: Opening) -> None:
    (tmp_path / "alias").symlink_to(tmp_path / "nowhere" / "bus")
    with pytest.raises(StoreUnavailable) as caught:
        here(scheme, str(tmp_path / "alias"), tmp_path)
    assert caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["alias"]


# What is beside the file


def test_everything_beside_the_file_is_beside_the_real_one(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "alias.db").symlink_to("inner/bus.db")
    with MessageBus(f"sqlite:///{tmp_path}/alias.db") as bus:
        bus.send("q", 1)
        history = open_history(f"sqlite:///{tmp_path}/alias.db")
        history.settle()
        history.show_cursor("audit", 1)
        assert bus.cursor("audit") == 1
        history.close()
        reader = open_reader(f"sqlite:///{tmp_path}/alias.db")
        assert [info.name for info in reader.entities()] == ["q"]
        reader.close()
        assert shown_cursors(f"{tmp_path}/inner/bus.db") == {"audit": 1}
        beside = {"bus.db", "bus.db-wal", "bus.db-shm", "bus.db.lock", "bus.db-cursors", "bus.db-reserve"}
        assert {path.name for path in (tmp_path / "inner").iterdir()} == beside
    assert {path.name for path in tmp_path.iterdir()} == {"inner", "alias.db"}


def test_the_preallocated_log_is_found_after_a_change_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with MessageBus("sqlite:///bus.db") as bus:
        monkeypatch.chdir(tmp_path / "elsewhere")
        before = (tmp_path / "bus.db-wal").stat().st_size
        for _ in range(4):
            bus.send("q", "x" * 100_000)
        # Zeros after the end: the log is longer than what was written to it.
        assert (tmp_path / "bus.db-wal").stat().st_size > before + 1_500_000
    assert list((tmp_path / "elsewhere").iterdir()) == []
