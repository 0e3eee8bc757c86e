"""`unibus import` restores an export completely and exactly once, and imports nothing from a damaged file."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.same_message import same_message
from unibus.bus.history.export_lines import checked_contents
from unibus.bus.history.import_ import Importing, StoreTarget
from unibus.cli.local.read_only import owning
from unibus.core.envelope.message import Message
from unibus.stores.seam.store import Store
from unibus.stores.seam.store_view import OpenStoreView, all_messages
from unibus.sync import MessageBus


@pytest.fixture
def exported(shell: Any) -> Path:
    """A bus with a message in every state."""
    with MessageBus("old.db") as bus:
        bus.create_queue("orders", max_delivery_count=3, default_ttl=None)
        bus.send_many("orders", ["dead", "tried", "deferred", "locked"], headers={"price": Decimal("1.50")})
        dead, tried, deferred, _ = bus.receive_batch("orders", 4, timeout=0)
        dead.dead_letter("Broken", "by hand")
        tried.abandon(properties={"note": b"\x00\xff"})
        deferred.defer()
        bus.send("orders", b"\x00bytes\xff", priority=7, correlation_id="c", dedup_key="k", message_id="m-bytes")
        bus.send("orders", "later", delay=3_600)
        bus.send("orders", {"nested": [1, 2.5, None, "ü\x00"]}, ttl=7_200)
        bus.create_topic("kept", keeps=True)
        bus.send("kept", "for the first")
        bus.create_topic("news")
        bus.create_subscription("news", "one")
        bus.create_subscription("news", "two", forward_dead_letters_to="orders")
        bus.send("news", "hello")
        bus.receive_batch("news/Subscriptions/two", 1, timeout=0)[0].complete()
        bus.create_queue("by-session", requires_session=True, lock_duration=1)
        bus.send("by-session", "a", session_id="s1")
        with bus.accept_session("by-session", "s1", timeout=0) as session:
            session.set_state(b"\x01state")
        with bus.accept_session("by-session", "s2", timeout=0) as session:
            session.set_state(b"of one without messages")
    shell.records("export", "all.jsonl", "--url", "old.db")
    return Path("all.jsonl")


def waiting(bus: MessageBus) -> dict[str, list[Message]]:
    return {info.name: bus.peek(info.name, 100) for info in bus.entities()}


def test_everything_is_as_it_was(shell: Any, exported: Path) -> None:
    (told,) = shell.records("import", str(exported), "--url", "new.db")
    assert told == {
        "already_imported": False,
        "steps": 12,
        "before": 0,
        "entities": 6,
        "messages": 10,
        "sessions": 2,
        "kept_states": [],
    }
    with MessageBus("old.db") as old, MessageBus("new.db") as new:
        for name, messages in waiting(old).items():
            there = {message.id: message for message in waiting(new)[name]}
            assert len(there) == len(messages)
            for message in messages:
                assert_alike(message, there[message.id])
        infos = {info.name: info for info in new.entities()}
        assert {info.name: info.settings for info in old.entities()} == {
            name: info.settings for name, info in infos.items()
        }
        orders = infos["orders"]
        assert (orders.active, orders.locked, orders.scheduled, orders.deferred, orders.dead) == (5, 0, 1, 0, 1)
        assert new.accept_session("by-session", "s1", timeout=0).state() == b"\x01state"
        assert new.accept_session("by-session", "s2", timeout=0).state() == b"of one without messages"
        bodies = [message.body for message in new.receive_batch("orders", 10, timeout=0)]
        assert bodies == [b"\x00bytes\xff", "tried", "deferred", "locked", {"nested": [1, 2.5, None, "ü\x00"]}]
        new.create_subscription("kept", "first")
        assert new.receive_batch("kept/Subscriptions/first", 1, timeout=0)[0].body == "for the first"


def assert_alike(one: Message, other: Message) -> None:
    """Equal in everything except the sequence number; a deferred message keeps its old one in a header."""
    if one.body == "deferred":
        assert other.headers["DeferredSequence"] == one.sequence
        assert {**one.headers, "DeferredSequence": one.sequence} == dict(other.headers)
        return
    other.sequence = one.sequence
    assert same_message(one, other), (one.body, one.headers, other.headers)


def test_once(shell: Any, exported: Path) -> None:
    shell.records("import", str(exported), "--url", "new.db")
    before = shell.records("entities", "--url", "new.db", "--dead-letters")
    renamed = exported.rename("renamed.jsonl")
    for _ in range(2):
        (told,) = shell.records("import", str(renamed), "--url", "new.db")
        assert (told["already_imported"], told["steps"], told["before"]) == (True, 0, 12)
    assert shell.records("entities", "--url", "new.db", "--dead-letters") == before


def test_through_a_pipe(shell: Any, exported: Path) -> None:
    result = shell("import", "-", "--url", "new.db", input=exported.read_bytes())
    assert (result.exit_code, json.loads(result.stdout)["messages"]) == (0, 10)
    assert shell.records("import", str(exported), "--url", "new.db")[0]["already_imported"]


class Stopped(Exception):
    pass


@pytest.mark.parametrize("stop_after", range(13))
def test_stopped_and_run_again(exported: Path, stop_after: int) -> None:
    """An import of one message at a time that ends after each possible step."""

    def run(store: Store, progress: Callable[[int, int], None]) -> Importing:
        with exported.open("rb") as file:
            contents = checked_contents(file)
            file.seek(0)
            importing = Importing(StoreTarget(store), contents, progress, batch=1)
            importing.run(file)
            return importing

    def stop(done: int, total: int) -> None:
        if done > stop_after:
            raise Stopped

    with owning("sqlite:///new.db") as store:
        if stop_after < 12:
            with pytest.raises(Stopped):
                run(store, stop)
        importing = run(store, lambda done, total: None)
        assert (importing.before, importing.is_complete) == ((stop_after + 1) % 13, True)
        assert len(list(all_messages(OpenStoreView(store)))) == 10
        assert len({entry.who.message_id for entry in store.list_messages("orders").wait()}) == 6


def test_into_a_bus_that_has_messages(shell: Any, exported: Path) -> None:
    with MessageBus("new.db") as bus:
        bus.create_queue("orders", max_delivery_count=3, default_ttl=None)
        bus.send("orders", "here before", dedup_key="k")
        bus.create_queue("by-session", requires_session=True, lock_duration=1)
        with bus.accept_session("by-session", "s1", timeout=0) as session:
            session.set_state(b"of its own")
    result = shell("import", str(exported), "--url", "new.db")
    assert (result.exit_code, json.loads(result.stdout)["kept_states"]) == (0, [["by-session", "s1"]])
    assert "which was not replaced" in result.stderr
    with MessageBus("new.db") as bus:
        assert bus.accept_session("by-session", "s1", timeout=0).state() == b"of its own"
        assert [message.body for message in bus.peek("orders", 2)] == ["here before", "tried"]


def test_conflicts_are_named_before_anything_is_changed(shell: Any, exported: Path) -> None:
    with MessageBus("new.db") as bus:
        bus.create_queue("Orders", max_delivery_count=3, default_ttl=None)
        bus.create_queue("by-session", requires_session=True, lock_duration=2)
        bus.create_queue("news")
    before = shell.records("entities", "--url", "new.db", "--settings")
    result = shell("import", str(exported), "--url", "new.db")
    assert (result.exit_code, result.stdout) == (1, "")
    lock = "lock_duration of 'by-session' is 2.0 in the store and 1.0 in"
    for text in ("3 conflicts", lock, "'news' is a queue in the store"):
        assert text in result.stderr
    assert shell.records("entities", "--url", "new.db", "--settings") == before


def cut(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def without_the_end(raw: bytes) -> bytes:
    return b"".join(raw.splitlines(keepends=True)[:-1])


def without_a_line(raw: bytes) -> bytes:
    lines = raw.splitlines(keepends=True)
    return b"".join([*lines[:5], *lines[6:]])


def changed(raw: bytes) -> bytes:
    return raw.replace(b'"hello"', b'"hallo"')


def twice(raw: bytes) -> bytes:
    return raw + raw


def newer(raw: bytes) -> bytes:
    return raw.replace(b'"unibus_export":1', b'"unibus_export":2', 1)


def of_others(raw: bytes) -> bytes:
    return b'{"n": 1}\n'


def strange(raw: bytes) -> bytes:
    return raw.replace(b'{"entity"', b'{"planet"', 1)


def nothing(raw: bytes) -> bytes:
    return b""


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (cut, "is truncated"),
        (without_the_end, "is truncated"),
        (without_a_line, "was changed"),
        (changed, "was changed"),
        (twice, "data after its last line"),
        (newer, "version 2"),
        (of_others, "not an export of unibus"),
        (strange, "line 2 of the export"),
        (nothing, "not an export of unibus"),
    ],
)
def test_a_damaged_file_is_not_imported(
    shell: Any, exported: Path, damage: Callable[[bytes], bytes], text: str
) -> None:
    exported.write_bytes(damage(exported.read_bytes()))
    for arguments, given in (((str(exported),), None), (("-",), exported.read_bytes())):
        result = shell("import", *arguments, "--url", "new.db", input=given)
        assert (result.exit_code, result.stdout) == (1, "")
        assert text in result.stderr
    assert not Path("new.db").exists()


def test_entities_alone(shell: Any) -> None:
    with MessageBus("old.db") as bus:
        bus.create_queue("empty", ordering="sequence")
    shell.records("export", "entities.jsonl", "--url", "old.db")
    assert shell.records("import", "entities.jsonl", "--url", "new.db")[0]["entities"] == 1
    (found,) = shell.records("entities", "--settings", "--url", "new.db")
    assert found["settings"]["ordering"] == "sequence"
    assert shell.records("import", "entities.jsonl", "--url", "new.db")[0]["already_imported"]


def test_a_queue_without_room_says_so_and_goes_on_later(shell: Any) -> None:
    with MessageBus("old.db") as bus:
        bus.create_queue("q", max_count=3)
        bus.send_many("q", range(3))
    shell.records("export", "q.jsonl", "--url", "old.db")
    with MessageBus("new.db") as bus:
        bus.create_queue("q", max_count=3)
        bus.send("q", "in the way")
    result = shell("import", "q.jsonl", "--url", "new.db")
    assert result.exit_code == 1
    assert "may hold 3" in result.stderr
    assert shell.records("receive", "q", "--url", "new.db")
    assert shell.records("import", "q.jsonl", "--url", "new.db")[0]["steps"] == 3


def test_a_terminal(shell: Any, exported: Path, terminal: Any) -> None:
    for text in ("imported 6 entities, 10 messages, 2 sessions", "already imported: 6 entities"):
        reading = terminal("import", str(exported), "--url", "new.db")
        assert reading.read_all() == 0, reading.output
        assert text in reading.output
    refused = terminal("import", "-")
    assert refused.read_all() == 2, refused.output


def test_a_file_that_is_not_there(shell: Any) -> None:
    result = shell("import", "nowhere.jsonl")
    assert (result.exit_code, "does not exist" in result.stderr) == (2, True)
    assert not Path("unibus.db").exists()


def test_what_is_disabled_lets_the_import_in_and_is_disabled_afterwards(shell: Any) -> None:
    with MessageBus("old.db") as bus:
        bus.create_queue("by-session", requires_session=True)
        bus.send("by-session", "a", session_id="s1")
        with bus.accept_session("by-session", "s1", timeout=0) as session:
            session.set_state(b"half way")
        bus.update_entity("by-session", status="disabled")
    shell.records("export", "all.jsonl", "--url", "old.db")
    assert shell("import", "all.jsonl", "--url", "new.db").exit_code == 0
    with MessageBus("new.db") as bus:
        (info,) = bus.entities.list()
        assert (info.settings["status"], info.active) == ("disabled", 1)
        bus.update_entity("by-session", status="active")
        with bus.accept_session("by-session", "s1", timeout=0) as session:
            assert session.state() == b"half way"
