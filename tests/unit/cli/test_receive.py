"""`unibus receive` completes a message only after it was shown, and releases every message that it did not show."""

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from unibus.sync import MessageBus


def fill(*bodies: object, queue: str = "q", **fields: object) -> None:
    with MessageBus("unibus.db") as bus:
        bus.send_many(queue, bodies, **fields)


def bodies(records: list[dict[str, Any]]) -> list[object]:
    return [each["body"] for each in records]


def test_one_message_is_shown_and_completed(shell: Any) -> None:
    fill({"n": 1}, "two", headers={"k": "v", "n": 1})
    (message,) = shell.records("receive", "q")
    shown = {name: message[name] for name in ("entity", "sequence", "body", "kind", "delivery_count", "headers")}
    assert shown == {
        "entity": "q",
        "sequence": 1,
        "body": {"n": 1},
        "kind": "json",
        "delivery_count": 1,
        "headers": {"k": "v", "n": 1},
    }
    assert message["enqueued_at"] >= message["sent_at"]
    counts = shell.counts("q")
    assert (counts["active"], counts["locked"]) == (1, 0)


def test_nothing_there_exits_with_3(shell: Any) -> None:
    fill(1)
    shell.records("receive", "q")
    result = shell("receive", "q", "--timeout", "0.01")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "", "")


def test_a_count_and_all_there_is(shell: Any) -> None:
    fill(*range(1, 1_204))
    assert bodies(shell.records("receive", "q", "--limit", "3")) == [1, 2, 3]
    assert bodies(shell.records("receive", "q", "--limit", "all")) == list(range(4, 1_204))
    assert shell.counts("q")["active"] == 0


def test_urgent_messages_come_first(shell: Any) -> None:
    fill("later")
    fill("now", priority=0)
    assert bodies(shell.records("receive", "q", "--limit", "all")) == ["now", "later"]


@pytest.mark.parametrize("option", ["--keep", "--peek-lock"])
def test_kept_messages_are_as_if_they_had_not_been_received(shell: Any, option: str) -> None:
    fill(*range(1_203))
    assert bodies(shell.records("receive", "q", "--limit", "all", option)) == list(range(1_203))
    assert shell.counts("q")["active"] == 1_203
    assert shell.records("receive", "q")[0]["delivery_count"] == 1


def test_delete_removes_without_a_lock(shell: Any) -> None:
    fill(1, 2)
    assert bodies(shell.records("receive", "q", "--limit", "all", "--delete")) == [1, 2]
    assert shell.counts("q")["active"] == 0


def test_raw_is_the_body_alone(shell: Any) -> None:
    fill({"a": "ü"}, "text", b"\xff", (1, 2))
    result = shell("receive", "q", "--limit", "all", "--raw")
    assert result.stdout_bytes == '{"a":"ü"}\ntext\n'.encode() + b'\xff{"$tuple":[1,2]}\n'


def test_what_json_lacks_is_told_by_its_kind(shell: Any) -> None:
    fill(b"\xff", (1, 2))
    records = shell.records("receive", "q", "--limit", "all")
    assert [(each["kind"], each["body"]) for each in records] == [("bytes", "/w=="), ("tagged", {"$tuple": [1, 2]})]


def test_dead_letters_are_read_from_the_sub_queue(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.send("q", "bad")
        bus.receive_batch("q", timeout=0)[0].dead_letter("Broken", "no wheels")
    (letter,) = shell.records("receive", "q", "--dead-letters")
    assert letter["entity"] == "q/$DeadLetterQueue"
    assert (letter["body"], letter["headers"]["DeadLetterReason"]) == ("bad", "Broken")
    assert shell("receive", "q", "--dead-letters").exit_code == 3


# Sessions


@pytest.fixture
def sessions(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.create_queue("s", requires_session=True, lock_duration=0.2)
        for session_id, body in [("a", 1), ("b", 2), ("a", 3)]:
            bus.send("s", body, session_id=session_id)


@pytest.mark.usefixtures("sessions")
def test_a_session_by_name_and_the_next_one(shell: Any) -> None:
    assert bodies(shell.records("receive", "s", "--session", "b", "--limit", "all")) == [2]
    records = shell.records("receive", "s", "--session", "next", "--limit", "all")
    assert [(each["session_id"], each["body"]) for each in records] == [("a", 1), ("a", 3)]
    result = shell("receive", "s", "--session", "next")
    assert (result.exit_code, result.stdout) == (3, "")


@pytest.mark.usefixtures("sessions")
def test_a_kept_session_is_free_and_uncounted(shell: Any) -> None:
    for _ in range(2):
        records = shell.records("receive", "s", "--session", "a", "--limit", "all", "--keep")
        assert [(each["body"], each["delivery_count"]) for each in records] == [(1, 1), (3, 1)]


@pytest.mark.usefixtures("sessions")
def test_the_lock_on_a_session_lasts_as_long_as_the_wait(shell: Any) -> None:
    shell.records("receive", "s", "--session", "b")
    shell.records("send", "s", "late", "--session", "b", "--delay", "1")  # Five times as long as the lock.
    assert bodies(shell.records("receive", "s", "--session", "b", "--timeout", "60")) == ["late"]


@pytest.mark.usefixtures("sessions")
def test_follow_takes_one_session_after_the_other(shell: Any) -> None:
    records = shell.records("receive", "s", "--session", "next", "--follow", "--limit", "3")
    assert [(each["session_id"], each["body"]) for each in records] == [("a", 1), ("a", 3), ("b", 2)]


@pytest.mark.usefixtures("sessions")
def test_a_session_where_none_belongs_and_none_where_one_is_needed(shell: Any) -> None:
    fill(1)
    result = shell("receive", "s")
    assert (result.exit_code, "or --session next" in result.stderr) == (2, True)
    result = shell("receive", "q", "--session", "next")
    assert (result.exit_code, "hint: remove --session" in result.stderr) == (2, True)


# Errors


def test_an_unknown_queue_exits_with_3_and_is_not_made(shell: Any) -> None:
    fill(1, queue="orders")
    result = shell("receive", "order")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "error: there is no queue or subscription 'order'\nhint: did you mean 'orders'?\n"
    result = shell("receive", "zzz", "--dead-letters")
    assert (result.exit_code, "`unibus entities` lists" in result.stderr) == (3, True)
    assert [each["name"] for each in shell.records("entities", "--dead-letters")] == ["orders"]


def test_a_store_that_is_not_there_is_not_made(shell: Any) -> None:
    for command in (["receive", "q"], ["peek", "q"], ["entities"]):
        result = shell(*command)
        assert (result.exit_code, result.stdout) == (4, "")
        assert result.stderr.startswith("error: file unibus.db does not exist\nhint: ")
    assert list(shell.folder.iterdir()) == []


def test_a_topic_is_no_queue(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.create_topic("t")
        bus.create_subscription("t", "mine")
        bus.send("t", 1)
    assert shell("receive", "t").exit_code == 2
    assert bodies(shell.records("receive", "t/Subscriptions/mine")) == [1]


@pytest.mark.parametrize(
    "options",
    [["--keep", "--delete"], ["--keep", "--follow"], ["--limit", "-1"], ["--timeout", "-1"], ["--timeout", "soon"]],
)
def test_a_wrong_call_exits_with_2(shell: Any, options: list[str]) -> None:
    fill(1)
    result = shell("receive", "q", *options)
    assert (result.exit_code, result.stdout, result.stderr.startswith("error: ")) == (2, "", True)
    assert shell.counts("q")["active"] == 1


# Ends


def first_line(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    assert process.stdout is not None
    line: dict[str, Any] = json.loads(process.stdout.readline())
    return line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_follower_and_no_message_is_held(shell: Any, number: signal.Signals) -> None:
    fill("shown")
    fill("not yet", delay=3_600)
    follower = shell.start("receive", "q", "--follow")
    assert first_line(follower)["body"] == "shown"
    follower.send_signal(number)
    out, errors = follower.communicate(timeout=60)
    assert (follower.returncode, out, errors.strip()) == (128 + number, b"", b"")
    counts = shell.counts("q")
    assert (counts["locked"], counts["scheduled"]) == (0, 1)


def test_a_signal_while_the_reader_does_not_read_gives_the_messages_back(shell: Any) -> None:
    big = "x" * 1_000_000  # More than a pipe holds: the command blocks in the middle of a line.
    fill(big, big)
    receiver = shell.start("receive", "q", "--limit", "all")
    assert receiver.stdout is not None
    assert os.read(receiver.stdout.fileno(), 1) == b"{"
    receiver.send_signal(signal.SIGINT)
    receiver.stdout.close()
    assert receiver.stderr is not None
    errors = receiver.stderr.read()
    receiver.stderr.close()
    assert receiver.wait(60) in (128 + signal.SIGINT, 141)
    assert b"Traceback" not in errors
    (message,) = shell.records("receive", "q")
    assert (message["sequence"], message["delivery_count"]) == (1, 1)
    assert shell.counts("q")["active"] == 1


def test_a_reader_that_goes_away_loses_no_message(shell: Any) -> None:
    big = "x" * 1_000_000
    fill(big, big)
    receiver = shell.start("receive", "q", "--limit", "all")
    assert receiver.stdout is not None
    assert os.read(receiver.stdout.fileno(), 1) == b"{"
    receiver.stdout.close()
    assert receiver.stderr is not None
    assert (receiver.stderr.read(), receiver.wait(60)) == (b"", 141)
    receiver.stderr.close()
    counts = shell.counts("q")
    assert (counts["active"], counts["locked"]) == (2, 0)
    assert shell.records("receive", "q")[0]["delivery_count"] == 1


# Terminals


def test_a_terminal_gets_blocks(shell: Any, terminal: Any) -> None:
    with MessageBus("unibus.db") as bus:
        body = {"id": 1, "note": "grün"}
        bus.send("q", body, priority=7, headers={"tenant": "[bold]acme"}, session_id="c1", correlation_id="o-1")
    received = terminal("receive", "q")
    assert received.read_all() == 0, received.output
    lines = plain(received.output)
    assert lines[0].startswith("#1  priority 7  delivery 1  enqueued 20")
    labels = [line.split(maxsplit=1) for line in lines[1:6]]
    assert [label for label, _ in labels] == ["id", "expires", "correlation", "session", "header"]
    assert [text for _, text in labels[2:]] == ["o-1", "c1", "tenant=[bold]acme"]
    assert lines[6:10] == ["  {", '    "id": 1,', '    "note": "grün"', "  }"]


def test_what_comes_from_outside_cannot_steer_the_terminal(shell: Any, terminal: Any) -> None:
    fill("\x1b]0;title\x07\x9b31m\nsecond", {"k": "\x1b[2J\x9b2J"}, headers={"\x1bh": "\x1b[2Jv"})
    received = terminal("receive", "q", "--limit", "all")
    assert received.read_all() == 0, received.output
    rest = received.output
    for style in ("\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[0m"):
        rest = rest.replace(style, "")
    assert not {"\x1b", "\x07", "\x9b"} & set(rest)
    assert "  \\x1b]0;title\\x07\\x9b31m\r\n  second\r\n" in rest


def test_a_terminal_is_told_that_there_was_nothing(shell: Any, terminal: Any) -> None:
    fill(1)
    shell.records("receive", "q")
    received = terminal("receive", "q")
    assert received.read_all() == 3, received.output
    assert plain(received.output) == ["no messages to receive from q"]


def test_ctrl_c_in_a_terminal(shell: Any, terminal: Any) -> None:
    fill("hello")
    following = terminal("receive", "q", "--follow")
    following.read_until("hello")
    following.interrupt()
    assert following.read_all() == 128 + signal.SIGINT, following.output
    assert "Traceback" not in following.output
    assert shell.counts("q")["locked"] == 0


def plain(output: str) -> list[str]:
    for style in ("\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[0m"):
        output = output.replace(style, "")
    return [line for line in output.splitlines() if line]
