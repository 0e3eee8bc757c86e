"""`unibus dlq` shows dead-lettered messages, asks for confirmation before bulk operations, and reports exact counts."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from unibus.sync import MessageBus

BATCHES = 40


def dead_letter(queue: str, count: int, reason: str = "Broken", first: int = 0) -> list[str]:
    """Creates `count` dead-lettered messages, and returns their ids."""
    with MessageBus("unibus.db") as bus:
        sent = bus.send_many(queue, [{"n": first + number} for number in range(count)])
        for message in bus.receive_batch(queue, count, timeout=0):
            message.dead_letter(reason, "bent\nat the corner")
    return [each.id for each in sent]


def active(queue: str) -> list[Any]:
    with MessageBus("unibus.db") as bus:
        return [message.body for message in bus.peek(queue, 10_000)]


# Looking


def test_letters_are_listed_as_lines(shell: Any) -> None:
    ids = dead_letter("orders", 2) + dead_letter("billing", 1, "Odd")
    records = shell.records("dlq", "ls")
    assert [each["id"] for each in records] == ids
    first = records[0]
    assert (first["entity"], first["source"], first["reason"]) == ("orders/$DeadLetterQueue", "orders", "Broken")
    assert (first["description"], first["attempts"], first["recoveries"]) == ("bent\nat the corner", 1, 0)
    assert [each["id"] for each in shell.records("dlq", "ls", "--limit", "1")] == ids[:1]
    assert [each["id"] for each in shell.records("dlq", "ls", "--queue", "bill*")] == ids[2:]
    assert [each["id"] for each in shell.records("dlq", "ls", "--id", ids[1], "--id", ids[2])] == ids[1:]


@pytest.mark.parametrize(
    ("option", "text", "found"),
    [
        ("--queue", "orders", 2),
        ("--queue", "other", 0),
        ("--source", "ord*", 2),
        ("--reason", "broken", 2),
        ("--reason", "odd", 0),
        ("--error", "BENT", 2),
        ("--description", "corner", 2),
        ("--older-than", "2h", 0),
        ("--newer-than", "2h", 2),
        ("--attempts-from", "2", 0),
        ("--attempts-below", "2", 2),
        ("--recoveries-from", "1", 0),
        ("--recoveries-below", "1", 2),
    ],
)
def test_each_option_of_the_filter(shell: Any, option: str, text: str, found: int) -> None:
    dead_letter("orders", 2)
    result = shell("dlq", "ls", option, text)
    assert (result.exit_code, len(result.stdout.splitlines())) == (0 if found else 3, found)


def test_a_summary_counts_by_queue_and_reason(shell: Any) -> None:
    dead_letter("orders", 3)
    dead_letter("orders", 1, "Odd")
    records = shell.records("dlq", "ls", "--summary")
    assert [(each["entity"], each["reason"], each["count"]) for each in records] == [
        ("orders/$DeadLetterQueue", "Broken", 3),
        ("orders/$DeadLetterQueue", "Odd", 1),
    ]


def test_one_letter_is_shown_with_its_message(shell: Any) -> None:
    ids = dead_letter("orders", 2)
    (record,) = shell.records("dlq", "show", ids[1])
    assert (record["id"], record["reason"], record["message"]["body"]) == (ids[1], "Broken", {"n": 1})
    assert "DeadLetterReason" not in record["message"].get("headers", {})
    for arguments in (("unknown",), (ids[0], "--queue", "other")):
        result = shell("dlq", "show", *arguments)
        assert (result.exit_code, "there is no dead-lettered message" in result.stderr) == (3, True)


def test_nothing_there_exits_with_3(shell: Any) -> None:
    shell.records("send", "q", "x")
    for command in (("ls",), ("ls", "--summary"), ("retry", "--all", "--yes"), ("discard", "--queue", "q", "--yes")):
        result = shell("dlq", *command)
        assert (result.exit_code, result.stdout, result.stderr) == (3, "", "")


def test_a_store_that_is_not_there_is_not_made(shell: Any) -> None:
    assert shell("dlq", "ls").exit_code == 4
    assert list(shell.folder.iterdir()) == []


def test_without_a_command_the_help_is_shown(shell: Any) -> None:
    for words, told in ((("dlq",), "redirect"), (("dlq", "rules"), "Apply rules")):
        result = shell(*words)
        assert (result.exit_code, told in result.stdout, result.stderr) == (0, True, "")
    assert "dlq" in shell("--help").stdout


# Acting


def test_letters_are_retried(shell: Any) -> None:
    dead_letter("orders", 3)
    dead_letter("billing", 1)
    (result,) = shell.records("dlq", "retry", "--queue", "orders", "--yes")
    assert result == {
        "retried": 3,
        "redirected": 0,
        "discarded": 0,
        "manual_review": 0,
        "skipped": 0,
        "errors": [],
        "dry_run": False,
    }
    assert active("orders") == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert shell.counts("billing")["dead"] == 1


def test_letters_are_redirected(shell: Any) -> None:
    ids = dead_letter("orders", 2)
    shell.records("send", "review", "x")
    (result,) = shell.records("dlq", "redirect", "review", "--id", ids[0], "--yes")
    assert result["redirected"] == 1
    assert active("review") == ["x", {"n": 0}]
    refused = shell("dlq", "redirect", "unknown", "--all", "--yes")
    assert (refused.exit_code, "'unknown'" in refused.stderr) == (3, True)


def test_letters_are_discarded(shell: Any) -> None:
    dead_letter("orders", 2)
    (result,) = shell.records("dlq", "discard", "--all", "--yes")
    assert result["discarded"] == 2
    assert shell("dlq", "ls").exit_code == 3


def test_a_dry_run_does_nothing(shell: Any) -> None:
    dead_letter("orders", 2)
    (result,) = shell.records("dlq", "retry", "--all", "--dry-run")
    assert (result["retried"], result["dry_run"], result["groups"][0]["count"]) == (2, True, 2)
    assert shell.counts("orders")["dead"] == 2


def test_who_cannot_be_asked_has_to_say_yes(shell: Any) -> None:
    dead_letter("orders", 1)
    result = shell("dlq", "discard", "--all")
    assert (result.exit_code, "--yes" in result.stderr) == (2, True)
    assert shell.counts("orders")["dead"] == 1


def test_all_of_them_have_to_be_asked_for(shell: Any) -> None:
    dead_letter("orders", 1)
    result = shell("dlq", "discard", "--yes")
    assert (result.exit_code, "--all" in result.stderr) == (2, True)
    assert shell.counts("orders")["dead"] == 1


def test_what_could_not_go_is_told_and_fails(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.create_queue("s", requires_session=True)
    ids = dead_letter("orders", 2)
    result = shell("dlq", "redirect", "s", "--all", "--yes")
    assert result.exit_code == 1
    assert [each for each, _ in json.loads(result.stdout)["errors"]] == ids


def test_a_bound_on_recoveries(shell: Any) -> None:
    dead_letter("orders", 1)
    assert shell.records("dlq", "retry", "--all", "--yes", "--max-recoveries", "0")[0]["manual_review"] == 1
    assert shell.records("dlq", "retry", "--all", "--yes", "--max-recoveries", "0", "--force")[0]["retried"] == 1


def test_a_rate_and_batches(shell: Any) -> None:
    dead_letter("orders", 3)
    arguments = ("--rate", "1000", "--batch-size", "2")
    assert shell.records("dlq", "retry", "--all", "--yes", *arguments)[0]["retried"] == 3
    assert shell("dlq", "retry", "--all", "--yes", "--rate", "-1").exit_code in (2, 3)


# Rules


def test_the_rules_that_are_shown_are_a_file_of_rules(shell: Any) -> None:
    shown = shell("dlq", "rules", "show").stdout
    Path("rules.json").write_text(shown)
    assert json.loads(shown)[2] == {"action": "discard", "reason": "validation"}
    assert shell("dlq", "rules", "show", "rules.json").stdout == shown


def test_rules_are_tried_and_carried_out(shell: Any) -> None:
    dead_letter("orders", 2, "network: gone")
    dead_letter("orders", 1, "Odd", first=2)
    Path("rules.json").write_text('[{"action": "discard", "reason": "odd"}, {"action": "retry", "reason": "network"}]')
    tried = shell.records("dlq", "rules", "test", "rules.json")
    assert [(each["rule"], each["action"], each["messages"]) for each in tried] == [
        (1, "discard", 1),
        (2, "retry", 2),
        (None, "manual_review", 0),
    ]
    assert [each["messages"] for each in shell.records("dlq", "rules", "test")] == [0, 2, 0, 1]
    assert shell("dlq", "rules", "run", "rules.json").exit_code == 2
    (dry,) = shell.records("dlq", "rules", "run", "rules.json", "--dry-run")
    (done,) = shell.records("dlq", "rules", "run", "rules.json", "--yes")
    assert (dry["retried"], dry["discarded"]) == (done["retried"], done["discarded"]) == (2, 1)
    assert active("orders") == [{"n": 0}, {"n": 1}]


def test_rules_that_are_none_are_refused(shell: Any) -> None:
    dead_letter("orders", 1)
    Path("rules.json").write_text('[{"action": "explode"}]')
    for command in ("show", "test", "run"):
        result = shell("dlq", "rules", command, "rules.json")
        assert (result.exit_code, "cannot be read" in result.stderr) == (2, True)
    assert shell("dlq", "rules", "show", "missing.json").exit_code == 2


# In a terminal


def test_a_terminal_gets_tables(shell: Any, terminal: Any) -> None:
    ids = dead_letter("orders", 2)
    listing = terminal("dlq", "ls", "--limit", "1")
    assert listing.read_all() == 0, listing.output
    assert ids[0] in listing.output
    assert "and 1 more" in listing.output
    summary = terminal("dlq", "ls", "--summary")
    assert (summary.read_all(), "messages" in summary.output) == (0, True)
    showing = terminal("dlq", "show", ids[0])
    assert showing.read_all() == 0
    order = [showing.output.index(text) for text in (ids[0], "at the corner", '"n": 0')]
    assert order == sorted(order)
    rules = terminal("dlq", "rules", "test")
    assert (rules.read_all(), "no rule matches" in rules.output) == (0, True)
    none = terminal("dlq", "ls", "--queue", "other")
    assert (none.read_all(), "no dead-lettered messages match" in none.output) == (3, True)


def test_a_terminal_is_shown_the_count_and_asked(shell: Any, terminal: Any) -> None:
    dead_letter("orders", 3)
    refused = terminal("dlq", "retry", "--queue", "orders")
    refused.read_until("Retry 3 dead-lettered messages?")
    assert "Broken" in refused.output
    refused.type(b"n\n")
    assert refused.read_all() == 1
    assert shell.counts("orders")["dead"] == 3
    agreed = terminal("dlq", "retry", "--queue", "orders")
    agreed.read_until("Retry 3 dead-lettered messages?")
    agreed.type(b"y\n")
    assert agreed.read_all() == 0, agreed.output
    assert "3 retried" in agreed.output
    assert len(active("orders")) == 3


def test_a_terminal_is_told_what_would_happen(shell: Any, terminal: Any) -> None:
    dead_letter("orders", 3)
    looking = terminal("dlq", "discard", "--all", "--dry-run")
    assert looking.read_all() == 0
    assert "it would be: 3 discarded" in looking.output
    assert shell.counts("orders")["dead"] == 3


def test_a_terminal_is_told_what_could_not_go(shell: Any, terminal: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.create_queue("s", requires_session=True)
    ids = dead_letter("orders", 12)
    trying = terminal("dlq", "redirect", "s", "--all", "--yes")
    assert trying.read_all() == 1
    assert "12 failed" in trying.output
    assert f"{ids[0]}: " in trying.output
    assert "and 2 more" in trying.output


def test_ctrl_c_stops_between_batches_and_tells_how_far_it_came(shell: Any, terminal: Any) -> None:
    dead_letter("orders", BATCHES)
    # One per second: it cannot finish before it is interrupted.
    working = terminal("dlq", "retry", "--all", "--yes", "--rate", "1")
    working.read_until(f"1/{BATCHES}")
    working.interrupt()
    assert working.read_all() == 128 + signal.SIGINT, working.output
    assert "stopped after" in working.output
    assert "Traceback" not in working.output
    counts = shell.counts("orders")
    assert 0 < counts["active"] < BATCHES
    assert f"stopped after {counts['active']} of {BATCHES} dead-lettered messages" in working.output
    assert shell.records("dlq", "retry", "--all", "--yes")[0]["retried"] == BATCHES - counts["active"]
    assert sorted(body["n"] for body in active("orders")) == list(range(BATCHES))


def test_ctrl_c_in_a_pipe_tells_a_program(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dead_letter("orders", 3)

    def interrupted(*given: object) -> Any:
        signal.raise_signal(signal.SIGINT)  # While it waits before the second batch.
        yield

    monkeypatch.setattr("unibus.bus.dead_letters.sweep.pause", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = shell("dlq", "retry", "--all", "--yes", "--rate", "1")
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 128 + signal.SIGINT
    assert json.loads(result.stdout) == {"stopped": True, "done": 1, "total": 3}
    assert shell.counts("orders")["active"] == 1


def test_ctrl_c_in_the_middle_of_a_batch_waits_for_its_end(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from unibus.bus.dead_letters.results import ProcessingResult

    dead_letter("orders", 4)
    count = ProcessingResult.count

    def interrupted(self: ProcessingResult, *given: Any) -> None:
        if not self.done:
            signal.raise_signal(signal.SIGINT)
        count(self, *given)

    monkeypatch.setattr(ProcessingResult, "count", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = shell("dlq", "retry", "--all", "--yes", "--batch-size", "2")
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 128 + signal.SIGINT
    assert json.loads(result.stdout) == {"stopped": True, "done": 2, "total": 4}
    assert shell.counts("orders")["active"] == 2
