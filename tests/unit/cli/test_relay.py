"""`unibus relay` stores the messages of an application's outbox, each once."""

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.programs import PATIENCE_S
from unibus.sync import MessageBus


def leave(monkeypatch: pytest.MonkeyPatch, *bodies: object, store: str = "unibus.db", queue: str = "orders") -> None:
    """One transaction for each body, by a program that ends before it has relayed them."""
    with monkeypatch.context() as patch, closing(sqlite3.connect("app.db")) as connection:
        patch.setattr("unibus.bus.outbox.relay.Relay._wake", lambda *given: True)
        with MessageBus(store) as bus:
            for body in bodies:
                with bus.transaction(connection=connection):
                    bus.send(queue, body)


def bodies_of(queue: str = "orders", store: str = "unibus.db") -> list[Any]:
    with MessageBus(store) as bus:
        return [message.body for message in bus.peek(queue, 100)]


def test_what_waits_is_stored_once(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(monkeypatch, 1, 2)
    told = {"file": "app.db", "relayed": 2, "set_aside": 0, "elsewhere": 0}
    assert shell.records("relay", "app.db") == [told]
    again = shell("relay", "app.db")
    assert (again.exit_code, json.loads(again.stdout)) == (3, {**told, "relayed": 0})
    assert bodies_of() == [1, 2]


def test_what_is_refused_is_told(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(monkeypatch, 1, 2)
    with MessageBus("unibus.db") as bus:
        bus.create_queue("orders", requires_session=True)
    result = shell("relay", "app.db")
    assert (result.exit_code, json.loads(result.stdout)["set_aside"]) == (1, 2)
    with MessageBus("unibus.db") as bus:
        bus.delete_entity("orders")
    assert shell("relay", "app.db").exit_code == 1
    assert [each["relayed"] for each in shell.records("relay", "app.db", "--again")] == [2]
    assert bodies_of() == [1, 2]


def test_what_is_for_another_store_is_left_or_adopted(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(monkeypatch, 1, store="old.db")
    with MessageBus("unibus.db") as bus:
        bus.create_queue("orders")
    result = shell("relay", "app.db")
    assert (result.exit_code, json.loads(result.stdout)["elsewhere"]) == (3, 1)
    assert [each["relayed"] for each in shell.records("relay", "app.db", "--adopt")] == [1]
    assert bodies_of() == [1]


def test_files_that_are_not_there(shell: Any) -> None:
    result = shell("relay", "app.db")
    assert result.exit_code == 4
    assert "unibus.db" in result.stderr
    with MessageBus("unibus.db"):
        pass
    result = shell("relay", "app.db")
    assert result.exit_code == 4
    assert "no file app.db" in result.stderr
    Path("noise.db").write_bytes(b"x" * 5_000)
    assert shell("relay", "noise.db").exit_code == 4


def test_people_read_a_line(shell: Any, terminal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(monkeypatch, 1)
    leave(monkeypatch, 2, store="old.db")
    shown = terminal("relay", "app.db")
    assert shown.read_all() == 0
    assert "1 transactions relayed" in shown.output
    assert "--adopt relays them to this one" in shown.output


def test_following_goes_on_until_ctrl_c(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(monkeypatch, 1, "late")
    with closing(sqlite3.connect("app.db")) as connection:
        with connection:
            late = connection.execute("DELETE FROM unibus_outbox WHERE id = 2 RETURNING *").fetchone()
        following = shell.start("relay", "app.db", "--follow")
        with following.stdout, following.stderr:
            assert json.loads(following.stdout.readline())["relayed"] == 1
            with connection:
                connection.execute("INSERT INTO unibus_outbox VALUES (?, ?, ?, ?, ?, ?, ?)", late)
            assert json.loads(following.stdout.readline())["relayed"] == 1
            following.send_signal(signal.SIGINT)
            assert following.wait(PATIENCE_S) == 128 + signal.SIGINT
    assert bodies_of() == [1, "late"]
