"""`unibus peek` shows messages and changes nothing."""

from typing import Any

from unibus.cli.connection.management import BATCH as PAGE
from unibus.sync import MessageBus


def sequences(records: list[dict[str, Any]]) -> list[int]:
    return [each["sequence"] for each in records]


def test_looking_has_no_effect(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.send_many("q", [1, 2], headers={"k": "v"})
    before = shell.records("entities", "--dead-letters")
    looks = [shell.records("peek", "q") for _ in range(2)]
    assert looks[0] == looks[1]
    assert [(each["body"], each["delivery_count"], each["headers"]) for each in looks[0]] == [
        (1, 0, {"k": "v"}),
        (2, 0, {"k": "v"}),
    ]
    assert shell.records("entities", "--dead-letters") == before


def test_a_count_and_a_beginning(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.send_many("q", range(2 * PAGE + 5))
    last = 2 * PAGE + 5
    assert sequences(shell.records("peek", "q")) == list(range(1, 11))
    assert sequences(shell.records("peek", "q", "--from", "7", "--limit", "2")) == [7, 8]
    assert sequences(shell.records("peek", "q", "--limit", str(PAGE + 1))) == list(range(1, PAGE + 2))
    assert sequences(shell.records("peek", "q", "--limit", "all")) == list(range(1, last + 1))
    assert sequences(shell.records("peek", "q", "--limit", "all", "--from", str(last))) == [last]


def test_scheduled_and_locked_messages_are_shown_too(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.send_many("q", ["locked", "active"])
        bus.send("q", "scheduled", delay=3_600)
        bus.receive_batch("q", timeout=0)
    records = shell.records("peek", "q")
    assert [each["body"] for each in records] == ["locked", "active", "scheduled"]
    assert [each["delivery_count"] for each in records] == [1, 0, 0]
    assert "scheduled_at" in records[2]
    assert "scheduled_at" not in records[1]
    assert ["locked_until" in each for each in records] == [True, False, False]


def test_dead_letters(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.send("q", "bad")
        bus.receive_batch("q", timeout=0)[0].dead_letter("Broken")
    assert shell("peek", "q").exit_code == 3
    (letter,) = shell.records("peek", "q", "--dead-letters")
    assert letter["headers"]["DeadLetterReason"] == "Broken"
    # The name of the dead-letter queue itself works, too, with and without the option.
    assert shell.records("peek", "q/$DeadLetterQueue", "--dead-letters") == [letter]
    assert shell.records("peek", "q/$DeadLetterQueue") == [letter]


def test_an_unknown_queue_exits_with_3_and_is_not_made(shell: Any) -> None:
    shell.records("send", "orders", "x")
    result = shell("peek", "ordrs")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.endswith("hint: did you mean 'orders'?\n")
    assert [each["name"] for each in shell.records("entities")] == ["orders"]


def test_nothing_there_exits_with_3(shell: Any) -> None:
    shell.records("send", "q", "x")
    result = shell("peek", "q", "--from", "2")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "", "")


def test_a_terminal_gets_blocks(shell: Any, terminal: Any) -> None:
    shell.records("send", "q", "hello\nthere")
    looking = terminal("peek", "q")
    assert looking.read_all() == 0, looking.output
    assert "not delivered yet" in looking.output
    assert "  hello\r\n  there\r\n" in looking.output


def test_people_see_bytes_as_what_their_content_type_says(terminal: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.send("q", b'{"tea": 2}', content_type="application/json; charset=utf-8")
        bus.send("q", "Grüße".encode(), content_type="text/plain")
        bus.send("q", b"no json", content_type="application/json")
        bus.send("q", b"\x00\x01")
    looking = terminal("peek", "q")
    assert looking.read_all() == 0, looking.output
    shown = looking.output
    assert '"tea": 2' in shown
    assert "Grüße" in shown
    assert "bytes in base64: bm8ganNvbg==" in shown
    assert "bytes in base64: AAE=" in shown


def test_without_a_file_the_hint_names_the_address_of_a_server(shell: Any) -> None:
    result = shell("peek", "q")
    assert "--url http://localhost:5300" in result.stderr
