"""`unibus send` stores its input, reports it for people or programs, and counts only what is stored."""

import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.owners import owner_of
from unibus.cli.messages.send import CHUNK_BYTES, LINES_PER_BATCH, InputBodies, lines_of


def test_a_pipe_gets_one_object(shell: Any) -> None:
    (result,) = shell.records("send", "orders", '{"id": 1}')
    assert (result["entity"], result["sequence"], result["duplicate"]) == ("orders", 1, False)
    assert result["durability"] == "D2"
    (message,) = shell.records("peek", "orders")
    assert (message["body"], message["id"]) == ({"id": 1}, result["id"])


BODIES = [
    (b'{"a": [1, null]}', {"a": [1, None]}),
    (b"12", 12),
    (b"007", "007"),
    (b"NaN", "NaN"),
    (b"1e999", "1e999"),
    (b"hello world", "hello world"),
    (b'{"half":', '{"half":'),
    (b"[" * 100_000, "[" * 100_000),
    (b"", ""),
    ("grün".encode(), "grün"),
    (b"\xff\x00", b"\xff\x00"),
]


@pytest.mark.parametrize(("data", "body"), BODIES)
def test_a_body_is_json_else_text_else_bytes(data: bytes, body: object) -> None:
    assert InputBodies().read(data) == body


def test_every_option_reaches_the_message(shell: Any) -> None:
    options = ["--priority", "7", "--session", "c1", "--dedup-key", "k", "--ttl", "60", "--correlation-id", "o-1"]
    shell.records("send", "q", "x", *options, "--header", "tenant=acme", "--header", "empty=", "--header", "e=a=b")
    (message,) = shell.records("peek", "q")
    found = {name: message[name] for name in ("priority", "session_id", "dedup_key", "correlation_id", "headers")}
    assert found == {
        "priority": 7,
        "session_id": "c1",
        "dedup_key": "k",
        "correlation_id": "o-1",
        "headers": {"tenant": "acme", "empty": "", "e": "a=b"},
    }
    assert message["expires_at"] > message["sent_at"]


def test_a_delay_schedules(shell: Any) -> None:
    shell.records("send", "q", "x", "--delay", "3600")
    counts = shell.counts("q")
    assert (counts["scheduled"], counts["active"]) == (1, 0)
    assert shell("receive", "q").exit_code == 3


def test_a_known_dedup_key_stores_nothing(shell: Any) -> None:
    duplicates = [shell.records("send", "q", "x", "--dedup-key", "k")[0]["duplicate"] for _ in range(2)]
    assert duplicates == [False, True]
    assert shell.counts("q")["active"] == 1


def test_a_lower_durability_is_told(shell: Any) -> None:
    assert shell.records("send", "q", "x", "--durability", "D1")[0]["durability"] == "D1"


@pytest.mark.parametrize(
    ("given", "body"),
    [(b"hello\n", "hello"), (b"two\n\n", "two\n"), (b"dos\r\n", "dos"), (b'{"a": 1}\n', {"a": 1}), (b"", "")],
)
def test_the_body_may_come_from_the_input(shell: Any, given: bytes, body: object) -> None:
    assert shell("send", "q", "-", input=given).exit_code == 0
    assert shell.records("peek", "q")[0]["body"] == body


def test_bytes_from_the_input_stay_bytes(shell: Any) -> None:
    shell("send", "q", input=b"\xff\n")
    assert shell("peek", "q", "--raw").stdout_bytes == b"\xff\n"


def test_an_argument_that_is_no_text_is_sent_as_bytes(shell: Any) -> None:
    shell.records("send", "q", os.fsdecode(b"\xff\xfe"))
    assert shell("peek", "q", "--raw").stdout_bytes == b"\xff\xfe"


def test_lines_become_messages(shell: Any) -> None:
    result = shell("send", "q", "--lines", "--priority", "3", input=b'{"n": 1}\n\nplain\r\n  \n3')
    assert (result.exit_code, result.stderr) == (0, "")  # No progress without a terminal.
    told = json.loads(result.stdout)
    assert told == {"entity": "q", "sent": 3, "duplicates": 0, "last_sequence": 3, "durability": "D2"}
    found = shell.records("peek", "q")
    assert [(each["body"], each["priority"]) for each in found] == [({"n": 1}, 3), ("plain", 3), (3, 3)]


def test_no_lines_are_no_messages(shell: Any) -> None:
    assert json.loads(shell("send", "q", "--lines", input=b"\n").stdout)["sent"] == 0


def test_lines_go_in_bounded_batches_and_none_is_cut() -> None:
    lines = [b"%d" % number * 3 for number in range(3 * LINES_PER_BATCH)]
    long = b"x" * (2 * CHUNK_BYTES + 5)
    batches = list(lines_of(io.BytesIO(b"\n".join([*lines, long, b"last"]))))
    assert [line for batch in batches for line in batch] == [*lines, long, b"last"]
    assert max(map(len, batches)) == LINES_PER_BATCH


def test_lines_before_a_refused_one_are_counted(shell: Any) -> None:
    from unibus.sync import MessageBus

    with MessageBus("unibus.db") as bus:
        bus.create_queue("small", max_count=LINES_PER_BATCH)
    result = shell("send", "small", "--lines", input=b"1\n" * (LINES_PER_BATCH + 1))
    assert (result.exit_code, result.stderr.startswith("error: ")) == (1, True)
    assert json.loads(result.stdout)["sent"] == LINES_PER_BATCH == shell.counts("small")["active"]


def test_ctrl_c_tells_what_was_sent(shell: Any, terminal: Any) -> None:
    theirs, ours = os.pipe()
    sending = terminal("send", "q", "--lines", stdin=theirs)
    os.close(theirs)
    os.write(ours, b"1\n2\nnot a whole li")
    sending.read_until("2 sent")  # The progress, while the input is still open.
    sending.interrupt()
    assert sending.read_all() == 128 + signal.SIGINT, sending.output
    os.close(ours)
    assert "\x1b[K2 messages sent to q" in sending.output
    assert "Traceback" not in sending.output
    assert shell.counts("q")["active"] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["q", "x", "--lines"],
        ["q", "--lines", "--dedup-key", "k"],
        ["q", "x", "--header", "nothing"],
        ["q", "x", "--header", "=text"],
        ["q", "x", "--priority", "300"],
        ["q", "x", "--ttl", "-1"],
        ["q", "x", "--durability", "D9"],
        ["q", "x", "--url", "memory://"],
        ["q", "x", "--url", ""],
        ["q", "x", "--url", "no-such-store://h"],
        ["a\nb", "x"],
        [],
    ],
)
def test_a_wrong_call_exits_with_2(shell: Any, arguments: list[str]) -> None:
    result = shell("send", *arguments, input="")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")


def test_a_store_that_cannot_be_reached_exits_with_4(shell: Any) -> None:
    for url in ("no/such/folder/bus.db", "redis://user:hunter2@host/0"):
        result = shell("send", "q", "x", "--url", url)
        assert (result.exit_code, result.stdout, "hunter2" in result.stderr) == (4, "", False)


@pytest.mark.parametrize("address", ["localhost:5300", "10.0.0.7:5300/", "[::1]:5300", "sb://localhost", "htp://bus"])
def test_the_address_of_a_server_without_http_makes_no_file(shell: Any, address: str) -> None:
    result = shell("send", "orders", "hello", "--url", address)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "http://" in result.stderr.splitlines()[1]
    assert list(shell.folder.iterdir()) == []


def test_a_queue_of_sessions_names_the_option(shell: Any) -> None:
    from unibus.sync import MessageBus

    with MessageBus("unibus.db") as bus:
        bus.create_queue("baskets", requires_session=True)
    for arguments in (("send", "baskets", "tea"), ("send", "baskets", "--lines")):
        result = shell(*arguments, input="tea\n")
        assert (result.exit_code, result.stderr.splitlines()[1]) == (2, "hint: add --session ID")


def test_a_file_may_have_the_name_of_an_address(shell: Any) -> None:
    assert shell("send", "orders", "hello", "--url", "./localhost:5300").exit_code == 0
    assert shell.records("receive", "orders", "--url", "localhost:5300")[0]["body"] == "hello"


def test_a_file_that_another_process_holds_exits_with_4(shell: Any) -> None:
    with owner_of(Path("unibus.db")):
        for arguments in (["send", "q", "x"], ["receive", "q"], ["peek", "q"]):
            result = shell(*arguments)
            assert (result.exit_code, result.stdout) == (4, "")
            assert "unibus.db is in use by process" in result.stderr
            assert "\nhint: stop that process" in result.stderr


def test_the_url_may_come_from_the_environment(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIBUS_URL", "sqlite:///elsewhere.db?durability=D1")
    assert shell.records("send", "q", "x")[0]["durability"] == "D1"
    assert (shell.folder / "elsewhere.db").exists()
    shell.records("send", "q", "x", "--url", "given.db")
    assert (shell.folder / "given.db").exists()
    assert not (shell.folder / "unibus.db").exists()


def test_a_terminal_gets_a_line(shell: Any, terminal: Any) -> None:
    first = terminal("send", "orders", "x", "--dedup-key", "k", "--delay", "30")
    assert first.read_all() == 0, first.output
    assert first.output.startswith("sent  orders #1  ")
    assert first.output.strip().endswith("D2  visible in 30 s")
    second = terminal("send", "orders", "x", "--dedup-key", "k")
    assert second.read_all() == 0, second.output
    assert second.output.startswith("duplicate, nothing was stored")


def test_a_terminal_sees_progress_and_a_count(shell: Any, terminal: Any) -> None:
    lines = shell.folder / "lines"
    lines.write_text("x\n" * 5)
    with lines.open() as source:
        sending = terminal("send", "orders", "--lines", stdin=source.fileno())
        assert sending.read_all() == 0, sending.output
    progress, _, count = sending.output.rpartition("\x1b[K")
    assert progress.strip() == "5 sent"
    assert count.split() == ["5", "messages", "sent", "to", "orders", "D2"]


def test_a_body_may_be_typed(shell: Any, terminal: Any) -> None:
    typing = terminal("send", "orders")
    typing.read_until("Ctrl-D")
    typing.type(b"hello\n\x04")
    assert typing.read_all() == 0, typing.output
    assert shell.records("peek", "orders")[0]["body"] == "hello"


BROKEN = '{"id":1'
AS_TEXT = (
    "stored as text, because it is not JSON: Input data was truncated (--as-json refuses such a body, --as-text sends "
    "text without this note)\n"
)


def test_a_body_that_was_meant_as_json_is_stored_as_text_with_a_note(shell: Any) -> None:
    result = shell("send", "orders", BROKEN)
    assert (result.exit_code, result.stderr) == (0, f"note: the body was {AS_TEXT}")
    assert [each["body"] for each in shell.records("peek", "orders")] == [BROKEN]


def test_lines_have_one_note(shell: Any) -> None:
    result = shell("send", "orders", "--lines", input=f"1\n{BROKEN}\nhello\n[2\n")
    assert (result.exit_code, result.stderr) == (0, f"note: 2 of 4 bodies were {AS_TEXT}")


@pytest.mark.parametrize("arguments", [["hello"], ["007"], [BROKEN, "--as-text"], ['{"id": 1}', "--as-json"]])
def test_what_was_meant_has_no_note(arguments: list[str], shell: Any) -> None:
    assert shell("send", "orders", *arguments).stderr == ""


def test_text_stays_text(shell: Any) -> None:
    shell.records("send", "orders", "12", "--as-text")
    assert [each["body"] for each in shell.records("peek", "orders")] == ["12"]


def test_json_refuses_what_is_none_and_stores_nothing(shell: Any) -> None:
    result = shell("send", "orders", BROKEN, "--as-json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: the body is not JSON: Input data was truncated\n"
        "hint: correct it, or leave --as-json out to send it as text\n"
    )
    assert not (shell.folder / "unibus.db").exists()
    assert shell("send", "orders", "x", "--as-json", "--as-text").exit_code == 2


def test_json_names_the_line_that_is_none(shell: Any) -> None:
    result = shell("send", "orders", "--lines", "--as-json", input='1\n\n{"a":\n2\n')
    assert result.exit_code == 2
    assert result.stderr.startswith("error: body 2 is not JSON")
    assert json.loads(result.stdout)["sent"] == 0  # The batch with that line was not sent.
