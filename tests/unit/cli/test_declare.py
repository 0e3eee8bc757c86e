"""`unibus declare` creates the entities of a file; a dry run creates none."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.owners import owner_of

DOCUMENT = {
    "queues": {"orders": {"lock_duration": 30}},
    "topics": {"news": {"subscriptions": {"red": {"rules": {"r": {"filter": "color = 'red'"}}}}}},
}


@pytest.fixture
def file(shell: Any) -> Path:
    path: Path = shell.folder / "entities.json"
    path.write_text(json.dumps(DOCUMENT), "utf-8")
    return path


def actions(records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(record["action"], record["name"]) for record in records]


def test_a_file_is_declared_and_the_same_again_is_nothing(shell: Any, file: Path) -> None:
    names = ["orders", "news", "news/Subscriptions/red"]
    assert actions(shell.records("declare", str(file))) == [("create", name) for name in names]
    assert actions(shell.records("declare", str(file))) == [("same", name) for name in names]
    assert [each["name"] for each in shell.records("entities")] == sorted(names)


def test_a_dry_run_does_nothing_and_makes_no_store(shell: Any, file: Path) -> None:
    assert [action for action, _ in actions(shell.records("declare", str(file), "--dry-run"))] == ["create"] * 3
    assert not (shell.folder / "unibus.db").exists()
    shell.records("declare", str(file))
    file.write_text(json.dumps({"queues": {"orders": {"lock_duration": 40}}}), "utf-8")
    (record,) = shell.records("declare", str(file), "--dry-run")
    assert (record["action"], record["settings"], record["before"]) == (
        "update",
        {"lock_duration": 40.0},
        {"lock_duration": 30.0},
    )
    assert [action for action, _ in actions(shell.records("declare", str(file)))] == ["update"]


def test_a_dry_run_works_beside_the_owner(shell: Any, file: Path) -> None:
    with owner_of(shell.folder / "unibus.db") as owner:
        owner("fill orders 1")
        assert actions(shell.records("declare", str(file), "--dry-run"))[0] == ("update", "orders")
        assert shell("declare", str(file)).exit_code == 4


def test_conflicts_are_named_and_nothing_is_done(shell: Any, file: Path) -> None:
    shell.records("send", "news", "x")  # A queue.
    result = shell("declare", str(file))
    assert (result.exit_code, "'news' is a queue in the store" in result.stderr) == (1, True)
    assert [each["name"] for each in shell.records("entities")] == ["news"]
    dry = shell("declare", str(file), "--dry-run")
    assert (dry.exit_code, json.loads(dry.stdout.splitlines()[-1])["action"]) == (1, "conflict")


def test_a_file_that_is_none(shell: Any) -> None:
    result = shell("declare", "missing.json")
    assert (result.exit_code, "cannot read" in result.stderr) == (2, True)


def test_people_see_lines(shell: Any, file: Path, terminal: Callable[..., Any]) -> None:
    shown = terminal("declare", str(file), "--dry-run")
    shown.read_until("create    subscription news/Subscriptions/red")
    assert shown.read_all() == 0
