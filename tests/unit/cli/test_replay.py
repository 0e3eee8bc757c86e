"""`unibus replay` shows past messages, and sends them again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.unit.cli.owners import owner_of
from unibus.sync import MessageBus


@pytest.fixture
def filled(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        for number in range(5):
            bus.send("orders", {"n": number}, message_id=f"m{number}", priority=number, headers={"k": "v"})
        for message in bus.receive_batch("orders", 5, timeout=0):
            message.complete()
        bus.create_queue("again", dedup_window=600)
        bus.create_topic("news")


def numbers(records: list[dict[str, Any]]) -> list[int]:
    return [each["body"]["n"] for each in records]


@pytest.mark.usefixtures("filled")
def test_what_is_gone_is_shown_again(shell: Any) -> None:
    records = shell.records("replay", "orders")
    assert numbers(records) == [0, 1, 2, 3, 4]
    assert (records[1]["sequence"], records[1]["id"], records[1]["headers"]) == (2, "m1", {"k": "v"})
    assert numbers(shell.records("replay", "orders", "--after", "3")) == [3, 4]
    assert numbers(shell.records("replay", "orders", "--after", "1", "--limit", "2")) == [1, 2]
    assert numbers(shell.records("replay", "orders", "--since", "1h")) == [0, 1, 2, 3, 4]
    assert shell("replay", "orders", "--raw", "--limit", "1").stdout == '{"n":0}\n'
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    for nothing in (("--since", later), ("--after", "5")):
        result = shell("replay", "orders", *nothing)
        assert (result.exit_code, result.stdout) == (3, "")
    assert shell.counts("orders")["active"] == 0


def test_beside_the_process_that_owns_the_store(shell: Any) -> None:
    with owner_of(shell.folder / "unibus.db") as owner:
        owner("fill orders 1500")
        owner("complete orders 20")
        assert [each["body"] for each in shell.records("replay", "orders")] == list(range(1500))
        result = shell("replay", "orders", "--to", "orders", "--yes")
        assert result.exit_code == 4
        assert "in use by" in result.stderr


@pytest.mark.usefixtures("filled")
def test_sent_again(shell: Any) -> None:
    (told,) = shell.records("replay", "orders", "--to", "again", "--yes", "--after", "2")
    assert told == {"entity": "again", "sent": 3, "duplicates": 0}
    found = shell.records("peek", "again")
    assert [(each["id"], each["priority"], each["delivery_count"]) for each in found] == [
        ("m2", 2, 0),
        ("m3", 3, 0),
        ("m4", 4, 0),
    ]
    # Three of them are in the dedup window of the queue.
    (told,) = shell.records("replay", "orders", "--to", "again", "--yes")
    assert told == {"entity": "again", "sent": 5, "duplicates": 3}
    assert shell.counts("again")["active"] == 5


def test_to_where_they_came_from_ends(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.send_many("q", range(1_200))
    (told,) = shell.records("replay", "q", "--to", "q", "--yes")
    assert (told["sent"], shell.counts("q")["active"]) == (1_200, 2_400)


@pytest.mark.usefixtures("filled")
def test_a_terminal_is_asked(shell: Any, terminal: Any) -> None:
    for answer, code, count in ((b"n\n", 1, 0), (b"y\n", 0, 5)):
        asking = terminal("replay", "orders", "--to", "again")
        asking.read_until("Send 5 messages of orders to again?")
        asking.type(answer)
        assert asking.read_all() == code, asking.output
        assert shell.counts("again")["active"] == count
    assert "5 messages sent to again" in asking.output


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("ordrs",), 3, "did you mean 'orders'?"),
        (("ordrs", "--to", "again", "--yes"), 3, "did you mean 'orders'?"),
        (("orders", "--to", "agin", "--yes"), 3, "did you mean 'again'?"),
        (("orders", "--to", "again"), 2, "add --yes to run without asking"),
        (("orders", "--after", "1", "--since", "1h"), 2, "--after and --since exclude each other"),
        (("orders", "--raw", "--to", "again"), 2, "use one of them"),
        (("orders", "--since", "soon"), 2, "--since"),
    ],
)
def test_what_is_wrong(shell: Any, arguments: tuple[str, ...], code: int, text: str) -> None:
    result = shell("replay", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert text in result.stderr
    assert shell.counts("again")["active"] == 0
