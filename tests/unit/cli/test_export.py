"""`unibus export` writes a bus to a file, even beside its owner."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.owners import owner_of
from unibus.sync import MessageBus


@pytest.fixture
def filled(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.create_queue("orders", max_delivery_count=3)
        bus.send_many("orders", [1, 2])
        bus.create_topic("news")
        bus.create_subscription("news", "mine")
        bus.send("news", "hello")


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.usefixtures("filled")
def test_a_file(shell: Any) -> None:
    (told,) = shell.records("export", "all.jsonl")
    assert told == {"file": "all.jsonl", "entities": 3, "messages": 3, "sessions": 0}
    header, *rest, end = lines(Path("all.jsonl").read_text())
    assert (header["unibus_export"], header["messages"], end["messages"]) == (1, 3, 3)
    assert [each["entity"] for each in rest[:3]] == ["orders", "news", "news/Subscriptions/mine"]
    assert rest[0]["settings"] == {"max_delivery_count": 3}
    assert [(each["message"], each["envelope"]["body"]) for each in rest[3:]] == [
        ("news/Subscriptions/mine", "hello"),
        ("orders", 1),
        ("orders", 2),
    ]
    assert os.stat("all.jsonl").st_mode & 0o077 == 0
    assert shell.counts("orders")["active"] == 2


@pytest.mark.usefixtures("filled")
def test_the_output(shell: Any) -> None:
    result = shell("export", "-")
    assert (result.exit_code, result.stderr) == (0, "")
    assert lines(result.stdout)[-1]["end"] is True


@pytest.mark.usefixtures("filled")
def test_some_of_it(shell: Any) -> None:
    def names(*queues: str) -> tuple[list[str], int]:
        found = lines(shell("export", "-", *(word for queue in queues for word in ("--queue", queue))).stdout)
        return [each["entity"] for each in found if "entity" in each], found[-1]["messages"]

    assert names("orders") == (["orders"], 2)
    assert names("news") == (["news", "news/Subscriptions/mine"], 1)
    assert names("news/Subscriptions/mine", "ORDERS") == (["orders", "news", "news/Subscriptions/mine"], 3)
    result = shell("export", "some.jsonl", "--queue", "ordrs")
    assert result.exit_code == 3
    assert os.listdir() == [each for each in os.listdir() if "some" not in each]


@pytest.mark.usefixtures("filled")
def test_a_file_that_is_there_is_left_alone(shell: Any) -> None:
    Path("mine.txt").write_text("precious")
    result = shell("export", "mine.txt")
    assert (result.exit_code, Path("mine.txt").read_text()) == (2, "precious")
    nowhere = shell("export", "no/folder/x.jsonl")
    assert (nowhere.exit_code, "folder no/folder does not exist" in nowhere.stderr) == (2, True)
    assert shell.records("export", "mine.txt", "--force")[0]["messages"] == 3
    assert lines(Path("mine.txt").read_text())[-1]["end"] is True


def test_one_moment_beside_a_process_that_writes(shell: Any) -> None:
    with owner_of(shell.folder / "unibus.db") as owner:
        owner("write")
        for number in range(3):
            (told,) = shell.records("export", f"{number}.jsonl")
            sequences = [each["sequence"] for each in lines(Path(f"{number}.jsonl").read_text()) if "message" in each]
            assert told["messages"] == len(sequences) > 0
            assert sequences == sorted(set(sequences))


@pytest.mark.usefixtures("filled")
def test_a_terminal(shell: Any, terminal: Any) -> None:
    writing = terminal("export", "all.jsonl")
    assert writing.read_all() == 0, writing.output
    assert "exported 3 entities, 3 messages, 0 sessions" in writing.output
    refused = terminal("export", "-")
    assert refused.read_all() == 2, refused.output
    assert "cannot be written to a terminal" in refused.output
