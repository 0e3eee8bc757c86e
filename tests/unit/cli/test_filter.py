"""`unibus filter test` shows whether a message matches and why: a tree for people, JSON Lines for programs."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from unibus.cli.filter.message import message_of, value_of
from unibus.cli.filter.view import pointed_at
from unibus.sync import MessageBus

EXPRESSION = "color = 'red' AND (price > 50 OR vip = TRUE)"


def tried(shell: Any, *arguments: str, input: str | None = None) -> tuple[int, list[dict[str, Any]]]:
    result = shell("filter", "test", *arguments, input=input)
    assert result.stderr == ""
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def matches(shell: Any, *arguments: str, input: str | None = None) -> bool:
    """By the exit code and by the output, which must agree."""
    code, records = tried(shell, *arguments, input=input)
    assert code == (0 if records[-1]["matches"] else 3)
    return code == 0


def test_every_part_with_its_value_through_a_pipe(shell: Any) -> None:
    code, (whole, *parts, verdict) = tried(shell, EXPRESSION, "--property", "color=red", "--property", "price=20")
    assert code == 3
    assert whole == {"depth": 0, "text": EXPRESSION, "shown": "UNKNOWN", "value": None}
    assert [(each["depth"], each["text"], each["value"]) for each in parts] == [
        (1, "color = 'red'", True),
        (2, "color", "red"),
        (1, "price > 50 OR vip = TRUE", None),
        (2, "price > 50", False),
        (3, "price", 20),
        (2, "vip = TRUE", None),
        (3, "vip", None),
    ]
    assert verdict == {"matches": False, "error": None}
    code, records = tried(
        shell, EXPRESSION, "--property", "color=red", "--property", "price=20", "--property", "vip=true"
    )
    assert (code, records[-1]) == (0, {"matches": True, "error": None})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("red", "red"),
        ("'red'", "red"),
        ("'1'", "1"),
        ("'it''s'", "it's"),
        ("''", ""),
        ("", ""),
        ("'a'b'", "'a'b'"),
        ("'", "'"),
        ("1.2.3", "1.2.3"),
        ("²", "²"),
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31T12:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T13:00:00+01:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-13-31T12:00", "2026-13-31T12:00"),
    ],
)
def test_a_value_has_the_type_it_looks_like(text: str, value: object) -> None:
    found = value_of(text)
    assert (type(found), found) == (type(value), value)


def test_a_property_that_is_null_is_not_there() -> None:
    assert dict(message_of(None, ["a=1", "b=null"], []).headers) == {"a": 1}


def test_system_properties_in_either_spelling(shell: Any) -> None:
    assert matches(
        shell, "sys.Label = 'x' AND sys.CorrelationId = '7'", "--sys", "subject=x", "--sys", "CorrelationId=7"
    )
    assert matches(shell, "sys.MessageId = 'm 1'", "--sys", "message_id='m 1'")
    assert matches(
        shell,
        "sys.DeliveryCount = 3 AND sys.SequenceNumber > 6",
        "--sys",
        "DeliveryCount=3",
        "--sys",
        "sequence_number=7",
    )
    assert matches(
        shell, "sys.TimeToLive IS NOT NULL AND sys.Label IS NULL", "--sys", "TimeToLive=30m", "--sys", "Label=null"
    )
    enqueued = ["--sys", "EnqueuedTimeUtc=2026-01-31T12:00:00Z", "--param", "noon=2026-01-31T12:00:00Z"]
    assert matches(shell, "sys.EnqueuedTimeUtc = @noon", *enqueued)


def test_parameters_and_the_lenient_mode(shell: Any) -> None:
    assert matches(shell, "price > @least", "--property", "price=20", "--param", "least=10")
    assert not matches(shell, "price = 20", "--property", "price='20'")
    assert matches(shell, "price = 20", "--property", "price='20'", "--mode", "lenient")


def test_a_message_as_peek_and_export_write_it(shell: Any) -> None:
    due = datetime(2026, 1, 31, 12, tzinfo=UTC)
    with MessageBus("unibus.db") as bus:
        bus.send("q", {"id": 1}, headers={"color": "red", "due": due, "n": 1}, subject="order", ttl=60, message_id="m")
    expression = "color = 'red' AND n = 1 AND due = @due AND sys.Label = 'order' AND sys.MessageId = 'm'"
    asked = [expression, "--param", "due=2026-01-31T12:00:00Z", "--message"]
    peeked = shell("peek", "q").stdout
    assert matches(shell, *asked, "-", input=peeked)
    assert not matches(shell, *asked, "-", "--property", "color=blue", input=peeked)
    assert not matches(shell, *asked, "-", "--property", "color=null", input=peeked)
    with MessageBus("unibus.db") as bus:
        bus.receive_batch("q", timeout=0)
    locked = shell("peek", "q").stdout
    assert "locked_until" in locked
    assert matches(shell, *asked, "-", input=locked)
    (line,) = [each for each in shell("export", "-").stdout.splitlines() if '"envelope"' in each]
    Path("one.json").write_text(json.dumps(json.loads(line), indent=2))
    assert matches(shell, *asked, "one.json")
    assert matches(shell, "color = 'red'", "--message", "-", input='{"headers": {"color": "red"}}')


def test_what_an_action_does(shell: Any) -> None:
    action = "SET price = price / 2; REMOVE vip; SET sys.Label = 'half'; SET color = color"
    code, records = tried(
        shell,
        "price > 10",
        "--property",
        "price=20",
        "--property",
        "vip=true",
        "--property",
        "color=red",
        "--action",
        action,
    )
    assert (code, records[-2]["matches"]) == (0, True)
    assert records[-1]["changes"] == [
        {"property": "price", "before": 20, "after": 10},
        {"property": "vip", "before": True, "after": None},
        {"property": "sys.Label", "before": None, "after": "half"},
    ]
    code, records = tried(shell, "price > 10", "--property", "price=5", "--action", action)
    assert (code, records[-1]) == (3, {"matches": False, "error": None})


def test_no_answer_is_neither_yes_nor_no(shell: Any) -> None:
    result = shell("filter", "test", "10 / n > 1", "--property", "n=0")
    assert (result.exit_code, result.stderr) == (1, "error: a whole number is divided by zero\n")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert records[0]["error"] == records[-1]["error"] == "a whole number is divided by zero"
    assert records[-1]["matches"] is None


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["color = 'red' ADN x = 1"], "  color = 'red' ADN x = 1\n                ^\n"),
        (["a = 1 AND\n\tb == 2"], "   b == 2\n     ^\n"),
        (["a = 1", "--action", "SET sys.Size = 1"], "  SET sys.Size = 1\n      ^\n"),
        (["a > "], "  a > \n      ^\n"),
        (["a = @limit"], "  a = @limit\n      ^\n"),
    ],
)
def test_a_mistake_is_pointed_at(arguments: list[str], shown: str, shell: Any) -> None:
    result = shell("filter", "test", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(shown + "error: ")


def test_the_caret_stands_below_what_is_wide_or_escaped() -> None:
    assert pointed_at("日本 == 1", 3) == "  日本 == 1\n       ^"
    assert pointed_at("a\x1b == 1", 3) == "  a\\x1b == 1\n        ^"
    long = "a = 1 AND " * 50 + "b == 2" + " AND a = 1" * 20
    line, caret = pointed_at(long, 502).splitlines()
    assert line[caret.index("^") :].startswith("== 2 AND")
    assert len(line) <= 80
    assert (line.lstrip()[0], line[-1]) == ("…", "…")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a = 1", "--property", "a"], "is not NAME=VALUE"),
        (["a = 1", "--property", "a=99999999999999999999"], "64"),
        (["a = 1", "--property", "a=" + "9" * 5000], "64"),
        (["a = 1", "--sys", "lable=x"], "did you mean"),
        (["a = 1", "--sys", "DeliveryCount=x"], "a whole number"),
        (["a = 1", "--sys", "ExpiresAtUtc=soon"], "2026-01-31"),
        (["a = 1", "--mode", "strict"], "use 'azure' or 'lenient'"),
        (["a = 1", "--message", "-"], "not one message in JSON"),
    ],
)
def test_what_cannot_be_tested(arguments: list[str], told: str, shell: Any) -> None:
    result = shell("filter", "test", *arguments, input="{} {}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert told in result.stderr


def test_no_command_shows_the_help(shell: Any) -> None:
    result = shell("filter")
    assert (result.exit_code, "test" in result.stdout) == (0, True)


def test_a_terminal_gets_a_tree(terminal: Any) -> None:
    asking = terminal("filter", "test", EXPRESSION, "--property", "color=red", "--property", "price=20")
    assert asking.read_all() == 3
    plain = without_colours(asking.output)
    assert f"{EXPRESSION}  UNKNOWN" in plain
    assert "├── color = 'red'  TRUE" in plain
    assert "        └── vip  NULL" in plain
    assert "does not match: UNKNOWN is not TRUE" in plain
    assert '{"' not in plain


def test_a_terminal_is_told_what_the_action_does(terminal: Any) -> None:
    asking = terminal("filter", "test", "a = 'x'", "--property", "a=x", "--action", "SET a = 'y'")
    assert asking.read_all() == 0
    plain = without_colours(asking.output)
    assert "matches" in plain
    assert "a  'x' → 'y'" in plain


def test_what_comes_from_outside_does_not_steer_the_terminal(terminal: Any) -> None:
    asking = terminal("filter", "test", "a = 'x\x1b[31m'", "--property", "a=y\x1b[32;4m")
    assert asking.read_all() == 3
    assert "\x1b[31m'" not in asking.output
    assert "\x1b[32;4m" not in asking.output
    assert r"'y\x1b[32;4m'" in without_colours(asking.output)


def without_colours(output: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", output).replace("\r\n", "\n")
