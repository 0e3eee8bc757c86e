"""`unibus trace` shows the path of a message, beside the process that owns the store."""

import io
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from tests.unit.cli.owners import owner_of
from unibus.cli.messages.trace import elapsed, tree_of
from unibus.sync import MessageBus


@pytest.fixture
def owner(shell: Any) -> Any:
    with owner_of(shell.folder / "unibus.db") as owner:
        owner("topic news one")
        owner("send news 7")
        owner("bury news/Subscriptions/one Broken")
        yield owner


@pytest.mark.usefixtures("owner")
def test_a_pipe_gets_the_events_in_order(shell: Any) -> None:
    records = shell.records("trace", "news-7")
    assert [(each["channel"], each["kind"]) for each in records] == [
        ("news", "published"),
        ("news/Subscriptions/one", "copied"),
        ("news/Subscriptions/one", "delivered"),
        ("news/Subscriptions/one/$DeadLetterQueue", "copied"),
        ("news/Subscriptions/one", "dead_lettered"),
    ]
    assert {each["message_id"] for each in records} == {"news-7"}


def test_a_terminal_gets_a_tree(shell: Any, terminal: Any, owner: Any) -> None:
    looking = terminal("trace", "news-7", columns=120)
    assert looking.read_all() == 0, looking.output
    assert re.search("\x1b\\[1;31m +Broken", looking.output)  # Why it was not delivered.
    text = re.sub("\x1b\\[[0-9;]*m", "", looking.output)
    lines = [line.rstrip() for line in text.splitlines()]
    assert re.fullmatch(r"news-7  \S.*  \d{4}-\d\d-\d\d", lines[0])
    assert len(re.findall(r"\d{4}-\d\d-\d\d", text)) == 1
    assert [line.index("news") for line in lines if "news" in line] == [0, 4, 8, 12]  # Nested.
    steps = [line for line in lines if re.search(r"\d\d:\d\d:\d\d\.\d\d\d +\+\d", line)]
    assert len(steps) == 5
    assert "+0 ms  routed" in steps[0]
    owner("complete news/Subscriptions/one/$DeadLetterQueue 1")
    again = terminal("trace", "news-7", columns=120)
    assert again.read_all() == 0, again.output
    assert "completed by" in again.output


@pytest.mark.usefixtures("owner")
def test_an_id_that_nobody_knows(shell: Any) -> None:
    result = shell("trace", "news-8")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "history is kept for 7 days" in result.stderr


def test_what_still_waits_says_so_and_text_cannot_steer_the_terminal(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.send("q", 1, message_id="m\x1b[31m")
        trace = bus.trace_message("m\x1b[31m")
    console = Console(file=io.StringIO(), width=100)
    console.print(tree_of(trace))
    assert isinstance(console.file, io.StringIO)
    drawn = console.file.getvalue()
    assert "\x1b" not in drawn
    assert "waiting" in drawn


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "+0 ms"), (0.999, "+999 ms"), (1.24, "+1.2 s"), (90, "+1.5 m"), (5_400, "+1.5 h")]
)
def test_elapsed(seconds: float, text: str) -> None:
    assert elapsed(timedelta(seconds=seconds)) == text


def test_a_correlation_id_traces_its_messages(shell: Any) -> None:
    with MessageBus("sqlite:///unibus.db") as bus:
        for number in (1, 2):
            bus.send("orders", number, message_id=f"m{number}", correlation_id="c-1", session_id="s-1")
        bus.send("orders", 3, message_id="m3", correlation_id="c-2")
    result = shell("trace", "c-1")
    assert result.exit_code == 0
    assert result.stderr == "no message has the id c-1; 2 messages with this correlation id:\n"
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["message_id"], each["kind"]) for each in events] == [("m1", "sent"), ("m2", "sent")]
    assert shell("trace", "s-1").exit_code == 3  # A session has too many messages to be meant.
    assert shell("trace", "' OR 1").exit_code == 3


def test_the_id_of_a_message_wins_over_a_correlation_id(shell: Any) -> None:
    with MessageBus("sqlite:///unibus.db") as bus:
        bus.send("orders", 1, message_id="same")
        bus.send("orders", 2, correlation_id="same")
    assert {each["message_id"] for each in shell.records("trace", "same")} == {"same"}


def test_many_messages_of_a_correlation_id_are_bounded(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unibus.cli.messages.trace.TRACES_MAX", 2)
    with MessageBus("sqlite:///unibus.db") as bus:
        bus.send_many("orders", [1, 2, 3], correlation_id="c")
    result = shell("trace", "c")
    assert result.stderr == "no message has the id c; the first 2 messages with this correlation id:\n"
    assert len(result.stdout.splitlines()) == 2


def test_a_correlation_id_is_found_beside_the_owner(shell: Any) -> None:
    with MessageBus("sqlite:///unibus.db") as bus:
        bus.send("orders", 1, message_id="m1", correlation_id="c-1")
        result = shell("trace", "c-1")
        assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1)
