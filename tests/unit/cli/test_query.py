"""`unibus query` runs SQL, shows a table to people and JSON or CSV to programs, and changes nothing."""

import csv
import io
import re
from typing import Any

import pytest

from unibus.sync import MessageBus


@pytest.fixture
def filled(shell: Any) -> Any:
    with MessageBus("unibus.db") as bus:
        bus.send_many("orders", [{"id": 1}, {"id": 2}, {"id": 3}])
        bus.send("letters", 'a "quoted", text\x1b[31m')
        bus.receive_batch("orders", 1, timeout=0)[0].complete()
    return shell


def test_json_lines_through_a_pipe(filled: Any) -> None:
    sql = "SELECT channel, status, count(*) AS n FROM messages GROUP BY 1, 2"
    before = filled.records("entities")
    assert filled.records("query", sql) == [
        {"channel": "letters", "status": "pending", "n": 1},
        {"channel": "orders", "status": "delivered", "n": 1},
        {"channel": "orders", "status": "pending", "n": 2},
    ]
    assert filled.records("query", "--json", "SELECT NULL AS a, 1.5 AS b, x'00ff' AS c") == [
        {"a": None, "b": 1.5, "c": "AP8="}
    ]
    assert filled.records("entities") == before


def test_csv(filled: Any) -> None:
    columns = "channel, payload ->> '$' AS text, NULL AS a, 7 AS b, x'00ff' AS c"
    sql = f"SELECT {columns} FROM messages WHERE channel = 'letters'"
    result = filled("query", "--csv", sql)
    assert (result.exit_code, result.stderr) == (0, "")
    assert list(csv.reader(io.StringIO(result.stdout))) == [
        ["channel", "text", "a", "b", "c"],
        ["letters", 'a "quoted", text\x1b[31m', "", "7", "00ff"],
    ]


def test_parameters_and_the_input(filled: Any) -> None:
    sql = "SELECT count(*) AS n FROM messages WHERE channel = ? AND status = ?"
    assert filled.records("query", sql, "-p", "orders", "--param", "pending") == [{"n": 2}]
    assert filled("query", "-", input="SELECT 1 AS a").stdout == '{"a":1}\n'


def test_rows_that_are_wider_than_the_terminal_are_shown_in_lines(filled: Any, terminal: Any) -> None:
    wide = terminal("query", "SELECT * FROM messages WHERE channel = 'letters'")
    assert wide.read_all() == 0
    lines = re.sub(r"\x1b\[\d*m", "", wide.output).splitlines()
    assert lines[0].startswith("id: ")
    assert [line.split() for line in lines if line.startswith("channel:")] == [["channel:", "letters"]]
    narrow = terminal("query", "SELECT channel, status FROM messages")
    assert (narrow.read_all(), "channel:" in narrow.output) == (0, False)


def test_no_row_exits_with_3(filled: Any) -> None:
    result = filled("query", "SELECT id FROM messages WHERE channel = 'nothing'")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "", "")
    result = filled("query", "--csv", "SELECT id FROM messages WHERE channel = 'nothing'")
    assert (result.exit_code, result.stdout) == (3, "id\n")


def test_more_rows_than_asked_for_are_told(filled: Any) -> None:
    result = filled("query", "SELECT id FROM messages", "--limit", "2")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)
    assert result.stderr == "there are more than 2 rows; --limit shows more\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["DELETE FROM messages"], 2, "may not be modified"),
        (["SELECT chanel FROM messages"], 2, "hint: did you mean channel?"),
        (["SELECT 1", "--csv", "--json"], 2, "exclude each other"),
        (["SELECT 1", "--time-limit", "-1"], 2, "--time-limit"),
        (["SELECT 1 WHERE 1 = ?"], 2, "bindings"),
        (
            ["SELECT count(*) FROM events a, events b, events c, events d, events e", "--time-limit", "0.01"],
            1,
            "time limit",
        ),
        (["SELECT 1", "--url", "absent.db"], 4, "does not exist"),
    ],
)
def test_what_goes_wrong(arguments: list[str], code: int, told: str, filled: Any) -> None:
    result = filled("query", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("error: ")
    assert told in result.stderr


def test_a_terminal_gets_a_table(filled: Any, terminal: Any) -> None:
    asking = terminal("query", "SELECT channel, payload, NULL AS empty FROM messages WHERE channel = 'letters'")
    assert asking.read_all() == 0, asking.output
    assert "channel" in asking.output
    assert "letters" in asking.output
    assert "–" in asking.output
    assert "1 row in " in asking.output
    assert "\x1b[31m" not in asking.output  # Data from a message cannot control the terminal.
    assert '{"' not in asking.output
    asking = terminal("query", "--json", "SELECT channel FROM messages WHERE channel = 'letters'")
    assert asking.read_all() == 0, asking.output
    assert '{"channel":"letters"}' in asking.output
