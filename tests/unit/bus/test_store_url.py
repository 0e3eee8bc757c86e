"""The first argument of a bus: what it may be, and what each of them means."""

import os
from pathlib import Path

import pytest

from tests.unit.bus.rigs import breaking_store
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.store_url import sqlite_url, url_of
from unibus.errors import StoreUnavailable, UsageError


@pytest.mark.parametrize("store", [None, "memory://", "memory", "in_memory", "inmemory", "memory://x"])
def test_memory_has_several_names(store: object) -> None:
    assert url_of(store) == ""


@pytest.mark.parametrize(
    ("store", "url"),
    [
        ("bus.db", "sqlite:///bus.db"),
        ("./bus.db", "sqlite:///./bus.db"),
        ("/var/lib/bus.db", "sqlite:////var/lib/bus.db"),
        (Path("some") / "bus.db", "sqlite:///some/bus.db"),
        ("what?.db", "sqlite:///what%3F.db"),
        ("a#b %.db", "sqlite:///a%23b%20%25.db"),
        ("sqlite:///bus.db?durability=D1", "sqlite:///bus.db?durability=D1"),
        ("redis://localhost", "redis://localhost"),
    ],
    ids=str,
)
def test_a_path_is_a_sqlite_file_and_a_url_is_itself(store: object, url: str) -> None:
    assert url_of(store) == url


@pytest.mark.parametrize("store", [5, object(), b"bus.db", ["bus.db"], "", "  "], ids=repr)
def test_what_is_no_store_is_said(store: object, face: type) -> None:
    with pytest.raises(UsageError):
        face(store)


def test_a_path_with_a_null_is_none() -> None:
    with pytest.raises(StoreUnavailable):
        sqlite_url("a\0b")


@pytest.mark.parametrize("name", ["bus.db", "what?.db", "a b#%41.db", "größe.db", "sub/../bus.db"])
@pytest.mark.parametrize("kind", ["text", "path", "persistence_path", "url"])
def test_the_file_has_the_name_that_was_given(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "sub").mkdir()
    path = tmp_path / name
    if kind == "persistence_path":
        bus = SyncMessageBus(persistence_path=path)
    else:
        bus = SyncMessageBus({"text": str(path), "path": path, "url": sqlite_url(str(path))}[kind])
    bus.send("q", 1)
    bus.close()
    assert path.is_file()
    assert {each.name for each in tmp_path.iterdir()} <= {Path(name).name, f"{Path(name).name}.lock", "sub"}


def test_a_relative_path_is_relative_to_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, store in enumerate(["a.db", "sqlite:///b.db", Path("c.db")]):
        bus = SyncMessageBus(store)
        bus.send("q", number)
        bus.close()
    assert {path.name for path in tmp_path.glob("*.db")} == {"a.db", "b.db", "c.db"}


def test_a_folder_that_is_not_there_is_said(tmp_path: Path, face: type) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        face(tmp_path / "nowhere" / "bus.db")
    assert caught.value.hint


def test_a_file_that_is_none_of_ours_is_left_alone(tmp_path: Path, face: type) -> None:
    path = tmp_path / "bus.db"
    path.write_text("something else\n" * 100)
    with pytest.raises(StoreUnavailable):
        face(path)
    assert path.read_text() == "something else\n" * 100
    os.unlink(path)
    bus = SyncMessageBus(path)  # The lock was let go.
    bus.close()


async def test_an_open_store_may_be_given(tmp_path: Path) -> None:
    store, _ = breaking_store(tmp_path / "bus.db")
    bus = MessageBus(store)
    await bus.publish("c", 1)
    await bus.send("q", 1)
    assert [info.name for info in await bus.entities()] == ["c", "q"]
    await bus.close()
    assert store.health().problem == "closed"


def test_a_store_beside_a_persistence_path_is_one_too_many(tmp_path: Path, face: type) -> None:
    with pytest.raises(UsageError):
        face(tmp_path / "a.db", persistence_path=tmp_path / "b.db")
    assert list(tmp_path.iterdir()) == []
