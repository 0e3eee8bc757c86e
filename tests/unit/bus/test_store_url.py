"""The first argument of a bus: what it may be, and what each of them means."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.bus.rigs import breaking_store
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.store_url import sqlite_url, url_of
from unibus.errors import StoreUnavailable, UsageError
from unibus.stores.seam.durability import Durability


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


KEY = "c2VjcmV0LWtleQ=="
IN_THIS_PROCESS = "and a bus opens a store in this process"


@pytest.mark.parametrize(
    "text",
    [
        f"Endpoint=sb://bus.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={KEY}",
        f"SharedAccessKeyName=Root; sharedaccesskey={KEY}",
        f"Endpoint=sb://localhost;SharedAccessSignature=SharedAccessSignature sr=x&sig={KEY}",
        "UseDevelopmentEmulator=true",
    ],
)
def test_a_connection_string_is_no_store(text: str, face: type) -> None:
    with pytest.raises(UsageError) as error:
        face(text)
    assert error.value.what == f"a connection string names a server, {IN_THIS_PROCESS}"
    assert error.value.hint == (
        "name a file: MessageBus('sqlite:///bus.db'); programs reach a server over HTTP, commands by --url with the "
        "connection string"
    )
    assert KEY not in str(error.value)


@pytest.mark.parametrize("text", ["http://localhost:5300", f"https://Root:{KEY}@bus.example.com", "HTTP://x"])
def test_a_server_is_no_store(text: str, face: type) -> None:
    with pytest.raises(StoreUnavailable, match=f"is the address of a server, {IN_THIS_PROCESS}") as error:
        face(text)
    assert "sqlite:///file.db" in error.value.hint
    assert KEY not in str(error.value)


@pytest.mark.parametrize("scheme", ["redis", "postgres", "postgresql+asyncpg", "mysql"])
def test_a_store_of_a_later_version_names_those_of_this_one(scheme: str, face: type) -> None:
    with pytest.raises(StoreUnavailable) as error:
        face(f"{scheme}://user:{KEY}@host/0")
    assert error.value.what == f"this version cannot keep messages in {scheme}://"
    assert error.value.hint == (
        "use one of memory:// (messages end with the process), sqlite:///file.db (one SQLite file), "
        "jsonfile:///folder (JSON files in a folder)"
    )


@pytest.mark.parametrize("scheme", ["sqlite3", "sqllite", "SQLite", "sqlite+aiosqlite"])
def test_a_misspelt_scheme_names_the_nearest(scheme: str, face: type) -> None:
    with pytest.raises(UsageError, match=r"did you mean sqlite://\?"):
        face(f"{scheme}:///bus.db")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (":memory:", "write memory://, or leave the store out"),
        ("sqlite:bus.db", "write sqlite:///bus.db, or ./sqlite:…"),
        ("jsonfile:/folder", "write jsonfile:///folder, or ./jsonfile:…"),
        ("redis:localhost", "write redis://…, or ./redis:…"),
        (
            "localhost:5300",
            "name a file: sqlite:///bus.db, or ./localhost:5300 for a file of that name; commands reach a server by "
            "--url",
        ),
    ],
)
def test_a_text_that_is_hardly_a_path_creates_no_file(
    text: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, face: type
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        face(text)
    assert error.value.hint == hint
    assert list(tmp_path.iterdir()) == []
    (tmp_path / text.replace("/", "")).touch()
    if "/" not in text:
        assert url_of(text).startswith("sqlite:///")  # A file that exists is meant.


@pytest.mark.parametrize("word", ["mysql", "postgres", "Redis", "rabbitmq", "kafka", "amqp", "http"])
def test_a_bare_word_for_an_engine_is_refused(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, face: type
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreUnavailable) as error:
        face(word)
    url = f"{word.casefold()}://…"
    assert (
        error.value.what == f"{word!r} names no file: as a URL it is {url}, and this version cannot keep messages there"
    )
    assert error.value.hint == (
        f"write sqlite:///file.db, jsonfile:///folder or memory://, or ./{word} for a file of that name"
    )
    assert list(tmp_path.iterdir()) == []
    face(f"./{word}")  # A path, as the hint says.
    assert (tmp_path / word).is_file()
    assert url_of(word) == f"sqlite:///{word}"  # It exists, so it is meant.


@pytest.mark.parametrize(
    ("word", "example"),
    [("sqlite", "sqlite:///file.db"), ("SQLite", "sqlite:///file.db"), ("jsonfile", "jsonfile:///folder")],
)
def test_a_bare_word_for_a_store_names_its_url(
    word: str, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, face: type
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="names a kind of store") as error:
        face(word)
    assert error.value.hint == f"write {example}, or ./{word} for a file of that name"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("scheme", "kind"), [("sqlite", "file"), ("jsonfile", "folder")])
def test_two_slashes_name_both_paths(
    scheme: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, face: type
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        face(f"{scheme}://data/x")
    assert str(error.value) == (
        f"'{scheme}://data/x' names no {kind}: after two slashes comes a host (write {scheme}:///data/x for "
        f"{tmp_path}/data/x, or {scheme}:////data/x for /data/x)"
    )


@pytest.mark.parametrize("slashes", ["///", "////"])
@pytest.mark.parametrize("scheme", ["sqlite", "jsonfile"])
def test_a_folder_that_does_not_exist_names_both_paths(
    scheme: str, slashes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, face: type
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreUnavailable) as error:
        face(f"{scheme}:{slashes}no-such-folder/x")
    meant = "/no-such-folder/x" if slashes == "////" else f"{tmp_path}/no-such-folder/x"
    assert meant in error.value.what
    assert error.value.hint == (
        f"create the folder first, or write {scheme}:///no-such-folder/x for {tmp_path}/no-such-folder/x, or "
        f"{scheme}:////no-such-folder/x for /no-such-folder/x"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "store", [":memory:", "sqlite:///:memory:", "sqlite:///:memory:?durability=D1", Path(":memory:")]
)
def test_the_word_for_memory_of_sqlite_makes_no_file(
    store: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        SyncMessageBus(store)
    assert str(error.value) == ("':memory:' would be the name of a file (write memory://, or leave the store out)")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_that_name_is_still_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    SyncMessageBus(f"sqlite:///{tmp_path}/:memory:").close()
    SyncMessageBus("sqlite:///:memory:").close()


def test_file_is_no_kind_of_store() -> None:
    with pytest.raises(UsageError) as error:
        SyncMessageBus("file:///tmp/bus.db")
    assert error.value.what == "file:// names a file, and not the kind of store that is in it"
    assert "did you mean" not in error.value.hint
    assert "sqlite:///file.db (one SQLite file)" in error.value.hint


@pytest.mark.parametrize(
    "make", [lambda: SyncMessageBus("sqlite:///bus.db?durability=D9"), lambda: Durability.of("D9")]
)
def test_an_unknown_durability_names_the_levels_that_stores_have(make: Callable[[], object]) -> None:
    with pytest.raises(UsageError) as error:
        make()
    assert error.value.hint == "use D0 (in memory), D1 (survives the end of the process) or D2 (survives a power cut)"
