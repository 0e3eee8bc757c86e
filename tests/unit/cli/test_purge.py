"""`unibus purge` removes the messages of one entity, after a confirmation."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from unibus.sync import MessageBus


def fill() -> None:
    with MessageBus("unibus.db") as bus:
        bus.send_many("orders", range(5))
        for message in bus.receive_batch("orders", 2, timeout=0):
            message.dead_letter("Broken")


def counts() -> tuple[int, int]:
    with MessageBus("unibus.db") as bus:
        (found,) = [each for each in bus.entities() if each.name == "orders"]
        return found.active, found.dead


def test_a_purge_removes_messages_and_leaves_the_dead_letters(shell: Any) -> None:
    fill()
    assert shell.records("purge", "orders", "--yes") == [{"purged": 3, "skipped": 0, "dry_run": False}]
    assert counts() == (0, 2)
    assert shell.records("purge", "orders", "--dead-letters", "--yes")[0]["purged"] == 2
    assert counts() == (0, 0)
    assert shell("purge", "orders", "--yes").exit_code == 3


def test_a_dry_run_changes_nothing(shell: Any) -> None:
    fill()
    assert shell.records("purge", "orders", "--dry-run") == [{"purged": 3, "skipped": 0, "dry_run": True}]
    assert counts() == (3, 2)


def test_without_a_terminal_it_has_to_be_confirmed(shell: Any) -> None:
    fill()
    result = shell("purge", "orders")
    assert (result.exit_code, "--yes" in result.stderr) == (2, True)
    assert counts() == (3, 2)


def test_a_name_that_does_not_exist_is_reported_with_the_nearest_one(shell: Any) -> None:
    fill()
    result = shell("purge", "order", "--yes")
    assert (result.exit_code, "did you mean 'orders'?" in result.stderr) == (3, True)
    assert shell("purge", "orders", "--dead-letters", "--yes", "--url", "missing.db").exit_code == 4


def test_a_topic_is_refused_with_a_hint(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.create_topic("news")
    result = shell("purge", "news", "--yes")
    assert (result.exit_code, "news/Subscriptions/NAME" in result.stderr) == (2, True)


def test_a_terminal_is_asked_with_the_number_of_messages(shell: Any, terminal: Any) -> None:
    fill()
    for answer, code, left in ((b"n\n", 1, 3), (b"y\n", 0, 0)):
        asked = terminal("purge", "orders")
        asked.read_until("Remove 3 messages of orders? [y/N]")
        asked.type(answer)
        assert asked.read_all() == code
        assert counts() == (left, 2)
    assert "purged: 3" in asked.output


def test_ctrl_c_stops_between_two_batches_and_reports_how_many(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageBus("unibus.db") as bus:
        bus.send_many("orders", range(1_200))

    @contextlib.contextmanager
    def interrupted() -> Iterator[None]:
        yield
        raise KeyboardInterrupt

    monkeypatch.setattr("unibus.cli.local.dead_letters.undisturbed", interrupted)
    result = shell("purge", "orders", "--yes")
    assert result.exit_code == 130
    stopped = json.loads(result.stdout)
    assert (stopped["stopped"], stopped["total"]) == (True, 1_200)
    assert counts() == (1_200 - stopped["done"], 0)
    assert 0 < stopped["done"] < 1_200
