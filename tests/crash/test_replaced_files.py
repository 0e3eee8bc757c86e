"""Files that are deleted or replaced under a running bus: it stops before more is written into nothing."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from unibus.errors import StoreFailed
from unibus.stores.files import held_files
from unibus.sync import MessageBus


def replace(path: Path) -> None:
    """By a file with the same content, as a restored backup is."""
    other = path.with_name("other")
    shutil.copyfile(path, other)
    os.replace(other, path)


def move_away(path: Path) -> None:
    os.rename(path, path.with_name("elsewhere"))


def new_folder(path: Path) -> None:
    move_away(path)
    shutil.copytree(path.with_name("elsewhere"), path)


CASES: list[tuple[str, str, Callable[[Path], None]]] = [
    ("sqlite", "bus", Path.unlink),
    ("sqlite", "bus", replace),
    ("sqlite", "bus", move_away),
    ("sqlite", "bus-wal", Path.unlink),
    ("sqlite", "bus-wal", replace),
    ("sqlite", "bus.lock", Path.unlink),
    ("jsonfile", "bus/wal/000000000001.jsonl", Path.unlink),
    ("jsonfile", "bus/wal/000000000001.jsonl", replace),
    ("jsonfile", "bus/state.json", Path.unlink),
    ("jsonfile", "bus", move_away),
    ("jsonfile", "bus", new_folder),
    ("jsonfile", "bus", shutil.rmtree),
]
IDS = [f"{kind}-{name}-{harm.__name__}" for kind, name, harm in CASES]
cases = pytest.mark.parametrize(("kind", "name", "harm"), CASES, ids=IDS)
some_cases = pytest.mark.parametrize(("kind", "name", "harm"), CASES[::4], ids=IDS[::4])


@pytest.fixture
def bus(tmp_path: Path, kind: str) -> MessageBus:
    bus = MessageBus(f"{kind}:///{tmp_path}/bus")
    bus.send("orders", 1)
    return bus


@cases
def test_health_notices_at_once(bus: MessageBus, tmp_path: Path, name: str, harm: Callable[[Path], None]) -> None:
    assert bus.health_check().ok
    harm(tmp_path / name)
    health = bus.health_check()
    assert health.status == "unhealthy"
    assert str(tmp_path / name) in health.problem
    with pytest.raises(StoreFailed, match="while the store was open"):
        bus.send("orders", 2)
    bus.close()


@some_cases
def test_a_commit_notices(
    bus: MessageBus, tmp_path: Path, name: str, harm: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second later at most: the test lets that second be over."""
    harm(tmp_path / name)
    now_ns = held_files.monotonic_ns()
    monkeypatch.setattr(held_files, "monotonic_ns", lambda: now_ns + held_files.LOOK_EVERY_NS)
    with pytest.raises(StoreFailed, match="while the store was open"):
        bus.send("orders", 2)
    assert not bus.health_check().ok
    bus.close()


@pytest.mark.parametrize("kind", ["sqlite"])
def test_closing_leaves_the_log_of_another_database_alone(bus: MessageBus, tmp_path: Path) -> None:
    """A backup that was restored under a running bus has a log of its own, under the same name."""
    for name in ("bus", "bus-wal"):
        replace(tmp_path / name)
    restored = (tmp_path / "bus").read_bytes(), (tmp_path / "bus-wal").read_bytes()
    assert not bus.health_check().ok
    bus.close()
    assert ((tmp_path / "bus").read_bytes(), (tmp_path / "bus-wal").read_bytes()) == restored
    with MessageBus(f"sqlite:///{tmp_path}/bus") as again:
        assert [message.body for message in again.peek("orders", 10)] == [1]


@pytest.mark.parametrize("kind", ["sqlite"])
def test_closing_saves_what_is_in_a_deleted_log(bus: MessageBus, tmp_path: Path) -> None:
    (tmp_path / "bus-wal").unlink()
    assert not bus.health_check().ok
    bus.close()
    with MessageBus(f"sqlite:///{tmp_path}/bus") as again:
        assert [message.body for message in again.peek("orders", 10)] == [1]


@pytest.mark.parametrize("kind", ["jsonfile"])
def test_closing_writes_nothing_into_another_folder(bus: MessageBus, tmp_path: Path) -> None:
    new_folder(tmp_path / "bus")
    before = {path: path.read_bytes() for path in (tmp_path / "bus").rglob("*") if path.is_file()}
    bus.close()
    assert {path: path.read_bytes() for path in (tmp_path / "bus").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("kind", ["sqlite", "jsonfile"])
def test_looking_is_bounded_to_once_per_second(bus: MessageBus, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    monkeypatch.setattr(held_files.HeldFiles, "problem", lambda _: looks.append("") or "")
    monkeypatch.setattr(held_files, "monotonic_ns", lambda: 10**18)
    for number in range(20):
        bus.send("orders", number)
    assert len(looks) <= 1
    monkeypatch.setattr(held_files, "monotonic_ns", lambda: 2 * 10**18)
    bus.send("orders", 0)
    assert len(looks) == 2
    monkeypatch.undo()
    bus.close()
