"""Commands and servers: which server is trusted, what happens when it is killed, and that no key is ever shown."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.unit.cli.programs import PATIENCE_S, Terminal, environment
from tests.unit.cli.served import Served, serving
from tests.unit.client.fake_server import FakeServer, cut, ok
from unibus.cli.main import app
from unibus.cli.server.server import ShownLogLine, _log_text
from unibus.client.address import address_of
from unibus.client.client import Client
from unibus.config.server_file import ServerFile, read_server_file, write_server_file
from unibus.sync import MessageBus

CANARY = "c4nary" + "K" * 37 + "="


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served") / "unibus.db", allow_reset=True) as found:
        yield found


@pytest.fixture
def served(shell: Any, shared: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """The server of the module without entities, and the shell in the folder of its file."""
    client = Client(address_of(shared.url, {}))
    client.post("reset", dict[str, int])
    client.close()
    shell.folder = shared.path.parent
    monkeypatch.chdir(shell.folder)
    return shared


@pytest.fixture
def whole_file(served: Served) -> Iterator[Path]:
    """Its FILE.serve.json, to be damaged."""
    path = served.path.parent / "unibus.db.serve.json"
    text = path.read_bytes()
    yield path
    path.write_bytes(text)
    path.chmod(0o600)


def debugged(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["--debug", *arguments], prog_name="unibus")


# Which server is trusted


def test_a_file_with_a_server_is_used_through_it(shell: Any, served: Served) -> None:
    assert shell.records("send", "orders", "1")[0]["sequence"] == 1
    assert [each["body"] for each in shell.records("receive", "orders")] == [1]
    assert (served.path.parent / "unibus.db.serve.json").stat().st_mode & 0o777 == 0o600


def test_when_the_server_has_stopped_the_file_is_opened(shell: Any) -> None:
    with serving(shell.folder / "unibus.db"):
        shell.records("send", "orders", "1")
    assert [each["body"] for each in shell.records("receive", "orders")] == [1]


def test_peek_says_until_when_a_message_is_locked(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.send("orders", 1)
        (held,) = bus.receive_batch("orders", timeout=0)
    until = held.locked_until
    assert until is not None
    looks = shell.records("peek", "orders")
    with serving(shell.folder / "unibus.db"):
        looks += shell.records("peek", "orders")
    assert [each["locked_until"] for each in looks] == [until.isoformat()] * 2


def test_what_a_killed_server_left_is_ignored(shell: Any) -> None:
    path = shell.folder / "unibus.db"
    write_server_file(str(path), ServerFile("http://127.0.0.1:9", 2**22 - 3, "local", CANARY, "", 0))
    assert shell.records("send", "orders", "1")[0]["sequence"] == 1
    told = debugged("peek", "orders")
    assert told.exit_code == 0
    assert re.fullmatch(r"debug: .*serve\.json is ignored: process \d+ does not own the store\n", told.stderr)
    assert CANARY not in told.output


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.chmod(0o644), "mode is 0644"),
        (lambda path: path.write_text("{"), "damaged"),
        (lambda path: path.write_text("[]"), "damaged"),
    ],
    ids=["mode", "half", "list"],
)
def test_a_file_that_is_not_believed_leads_to_the_store(shell: Any, whole_file: Path, damage: Any, reason: str) -> None:
    damage(whole_file)
    told = debugged("peek", "orders")
    assert told.exit_code == 4  # The server still has the file open.
    assert f"serve.json is ignored: it{'s' if 'mode' in reason else ' is'}" in told.stderr
    assert reason in told.stderr


def test_a_server_that_cannot_prove_itself_gets_nothing(shell: Any, served: Served, whole_file: Path) -> None:
    forger = FakeServer([ok(b'{"proof": "00"}'), ok(b"[]")])
    write_server_file(str(served.path), ServerFile(f"http://127.0.0.1:{forger.port}", os.getpid(), "r", CANARY, "", 0))
    told = debugged("send", "orders", "secret body")
    forger.close()
    assert told.exit_code == 4
    assert "did not prove" in told.stderr
    assert len(forger.requests) == 1
    assert b"/unibus/v1/proof?nonce=" in forger.requests[0]
    assert b"uthorization" not in forger.requests[0]
    assert CANARY not in told.output


def test_a_program_learns_the_address_of_the_server(shell: Any, served: Served) -> None:
    program = "import sys; from unibus.sync import MessageBus; MessageBus(sys.argv[1])"
    arguments = [sys.executable, "-c", program, str(served.path)]
    result = subprocess.run(arguments, capture_output=True, env=environment(), text=True, check=False)
    assert f"in use by the server {served.url}, process {os.getpid()}" in result.stderr


# Addresses and keys


def test_a_port_without_a_server_is_exit_code_4(shell: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    result = shell("entities", "--url", f"http://127.0.0.1:{port}")
    assert (result.exit_code, result.stdout) == (4, "")
    assert f"error: the server http://127.0.0.1:{port} cannot be reached: connection refused\nhint:" in result.stderr


def test_a_wrong_key_is_exit_code_5(shell: Any, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIBUS_KEY", f"root:{CANARY}")
    result = debugged("entities", "--url", served.url)
    assert result.exit_code == 5
    assert CANARY not in result.output
    result = debugged("entities", "--url", served.url.replace("://", f"://main:{CANARY}@"))
    assert result.exit_code == 5
    assert CANARY not in result.output


@pytest.mark.parametrize(
    "url",
    [
        f"http://main:{CANARY}@127.0.0.1:1",
        f"https://main:{CANARY}@127.0.0.1:1",
        f"http://main:{CANARY}@",
        f"http://main:{CANARY}@127.0.0.1:99999",
        f"http://{CANARY}@127.0.0.1:1",
        f"Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=root;SharedAccessKey={CANARY}",
        f"Endpoint=;SharedAccessKeyName=root;SharedAccessKey={CANARY}",
    ],
)
@pytest.mark.parametrize("arguments", [("entities",), ("send", "q", "1"), ("server", "status"), ("top", "--once")])
def test_no_key_is_ever_shown(shell: Any, url: str, arguments: tuple[str, ...]) -> None:
    told = debugged(*arguments, "--url", url)
    assert told.exit_code in (2, 4, 5)
    assert CANARY not in told.output


def test_the_key_of_the_server_file_is_in_no_output(shell: Any, served: Served) -> None:
    found = read_server_file(str(served.path))
    assert found is not None
    texts = []
    for arguments in (
        ("send", "orders", "1"),
        ("receive", "orders", "--session", "x"),
        ("access", "list"),
        ("entities", "--settings"),
        ("server", "status"),
        ("server", "logs"),
        ("export", "-"),
        ("query", "SELECT * FROM events"),
        ("access", "token", "--rule", "x"),
        ("trace", "none"),
    ):
        told = debugged(*arguments)
        texts.append(told.output)
    assert found.key not in "".join(texts)
    assert found.rule not in shell("access", "list").output


# A server that is killed


def test_the_lost_answer_of_a_send_is_said_to_be_unknown(shell: Any) -> None:
    forger = FakeServer([cut, ok(b"[]")])
    result = shell("send", "orders", "1", "--url", f"http://127.0.0.1:{forger.port}")
    forger.close()
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error: the outcome is unknown" in result.stderr
    assert len(forger.requests) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (ok(b"{}"), "the answer of the server"),
        (ok(b'[{"entity": 7}]'), "the answer of the server"),
        (ok(b"[]"), "the server acknowledged 0 messages of 1"),
    ],
    ids=["object", "type", "none"],
)
def test_a_server_that_lies_about_a_send(shell: Any, answer: bytes, error: str) -> None:
    forger = FakeServer([answer])
    result = shell("send", "orders", "1", "--url", f"http://127.0.0.1:{forger.port}")
    forger.close()
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"error: {error}" in result.stderr


SERVE = ["serve", "--port", "0", "--amqp-port", "off", "--host", "127.0.0.1", "--no-tls"]


@pytest.fixture
def process(shell: Any) -> Iterator["subprocess.Popen[bytes]"]:
    started = shell.start(*SERVE)
    assert started.stdout is not None
    assert started.stdout.readline().startswith(b"endpoints")
    yield started
    started.kill()
    started.communicate()


def test_a_server_killed_while_a_command_receives(shell: Any, process: "subprocess.Popen[bytes]") -> None:
    Path("entities.json").write_text('{"queues": {"short": {"lock_duration": 1}}}')
    shell.records("declare", "entities.json")
    shell.records("send", "orders", "1")
    shell.records("send", "short", "2")
    receiving = shell.start("receive", "orders", "--follow")
    assert json.loads(receiving.stdout.readline())["body"] == 1
    found = read_server_file("unibus.db")
    assert found is not None
    client = Client(address_of(found.url, {}))
    while client.get("server", dict[str, Any])["requests_in_flight"] < 2:
        assert receiving.poll() is None  # Until it waits for the next one.
    assert len(client.post("messages/receive", list[Any], {}, {"entity": "short"})) == 1  # And never settled.
    client.close()
    process.kill()
    process.wait()
    _, stderr = receiving.communicate(timeout=PATIENCE_S)
    assert receiving.returncode in (1, 4)
    assert b"error:" in stderr
    assert b"Traceback" not in stderr
    assert shell("peek", "orders").exit_code == 3  # Completed messages stay completed,
    # and locked ones are redelivered after their lock has expired.
    assert [each["body"] for each in shell.records("receive", "short", "--timeout", "30")] == [2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_gives_back_what_was_not_shown(shell: Any, served: Served, number: int) -> None:
    shell.records("send", "orders", "1")
    receiving = shell.start("receive", "orders", "--limit", "2", "--timeout", "60")
    assert json.loads(receiving.stdout.readline())["body"] == 1
    client = Client(address_of(served.url, {}))
    while client.get("server", dict[str, Any])["requests_in_flight"] < 2:
        assert receiving.poll() is None  # Until it waits for the next one.
    client.close()
    receiving.send_signal(number)
    receiving.communicate(timeout=PATIENCE_S)
    assert receiving.returncode == 128 + number
    shell.records("send", "orders", "2")
    assert (shell.counts("orders")["active"], shell.counts("orders")["locked"]) == (1, 0)


# Live


def test_tail_follows_through_the_server(shell: Any, served: Served, terminal: Any) -> None:
    shell.records("send", "followed", "1")
    window: Terminal = terminal("tail", "followed", "-f")
    window.read_until("space pauses")
    shell.records("send", "followed", "2")
    window.read_until("#2")
    window.type(b" ")
    window.read_until("paused")
    shell.records("send", "followed", "3")
    window.type(b" ")
    window.read_until("#3")
    window.type(b"q")
    assert window.read_all() == 0


def test_top_shows_what_changes_through_the_server(shell: Any, served: Served, terminal: Any) -> None:
    shell.records("send", "orders", "1")
    window: Terminal = terminal("top")
    window.read_until("orders")
    shell.records("send", "arrived", "2")
    window.read_until("arrived")
    window.type(b"q")
    assert window.read_all() == 0


def test_top_through_a_pipe_goes_on(shell: Any, served: Served) -> None:
    shell.records("send", "orders", "1")
    watching = shell.start("top", "--every", "100ms")
    lines = [json.loads(watching.stdout.readline()) for _ in range(3)]
    watching.terminate()
    watching.communicate(timeout=PATIENCE_S)
    assert [each["name"] for each in lines] == ["orders"] * 3


# The server itself


def test_a_terminal_gets_lines_of_the_log_with_time_and_level() -> None:
    line = ShownLogLine(1, 1_794_970_000_123_000_000, "warning", "the disk is full")
    assert _log_text(line) == "2026-11-18T02:46:40.123Z warning the disk is full"
    audit = ShownLogLine(2, 0, "info", '{"time":"2026-11-18T02:46:40.123Z"}')
    assert _log_text(audit) == audit.text


def test_status_logs_and_stop(shell: Any, process: "subprocess.Popen[bytes]") -> None:
    [status] = shell.records("server", "status")
    assert (status["pid"], status["health"]) == (process.pid, "healthy")
    assert isinstance(status["requests_per_s"], float)
    assert any("started" in each["text"] for each in shell.records("server", "logs", "-n", "20"))
    [stopped] = shell.records("server", "stop")
    assert stopped == {"stopped": True, "pid": process.pid}
    assert process.wait(PATIENCE_S) == 0
    assert not Path("unibus.db.serve.json").exists()
    again = shell("server", "stop")
    assert (again.exit_code, "no server of this user" in again.stderr) == (4, True)


def test_the_status_for_people(shell: Any, served: Served, terminal: Any) -> None:
    window: Terminal = terminal("server", "status")
    assert window.read_all() == 0
    for text in ("server", "store", "sqlite:///", "health", "healthy", "connections", "rates"):
        assert text in window.output


def test_check_and_repair_refuse_a_served_file(shell: Any, served: Served) -> None:
    for arguments in (("check", "unibus.db"), ("repair", "unibus.db", "--to", "new.db")):
        result = shell(*arguments)
        assert result.exit_code == 4
        assert f"in use by the server {served.url}" in result.stderr
    assert shell("check", served.url).exit_code == 2
    assert not Path("new.db").exists()


# Jobs


def dead_letter(served: Served, count: int) -> None:
    client = Client(address_of(served.url, {}))
    entity = {"entity": "orders"}
    bodies = [{"body": number} for number in range(count)]
    client.post("messages/send", list[Any], {"messages": bodies}, {**entity, "create": "true"})
    found = client.post("messages/receive", list[dict[str, Any]], {"count": count}, entity)
    tokens = [each["token"] for each in found]
    client.post("messages/settle", list[Any], {"verb": "dead_letter", "tokens": tokens}, entity)
    client.close()


def newest(shell: Any) -> Any:
    return max(shell.records("dlq", "jobs", "ls"), key=lambda job: job["id"])


def test_a_detached_job_goes_on_in_the_server(shell: Any, served: Served) -> None:
    dead_letter(served, 3)
    [told] = shell.records("dlq", "retry", "--all", "--yes", "--detach")
    while shell.records("dlq", "jobs", "show", str(told["job"]))[0]["state"] != "done":
        pass
    assert newest(shell)["counts"]["retried"] == 3
    assert shell.counts("orders")["active"] == 3


def test_detach_needs_a_server(shell: Any) -> None:
    shell.records("send", "orders", "1")
    with MessageBus("unibus.db") as bus:
        bus.receive_batch("orders", 1, timeout=0)[0].dead_letter("x")
    result = shell("dlq", "retry", "--all", "--yes", "--detach")
    assert (result.exit_code, "--detach needs a server" in result.stderr) == (2, True)


def test_ctrl_c_cancels_the_job_and_reports(shell: Any, served: Served) -> None:
    dead_letter(served, 50)
    working = shell.start("dlq", "discard", "--all", "--yes", "--rate", "20", "--batch-size", "1")
    while not any(each["state"] == "running" and each["done"] for each in shell.records("dlq", "jobs", "ls")):
        assert working.poll() is None
    working.send_signal(signal.SIGINT)
    stdout, _ = working.communicate(timeout=PATIENCE_S)
    assert working.returncode == 128 + signal.SIGINT
    told = json.loads(stdout)
    job = newest(shell)
    assert (told["stopped"], told["total"], job["state"]) == (True, 50, "cancelled")
    assert told["done"] == job["done"] == 50 - shell.counts("orders/$DeadLetterQueue")["active"]


def test_jobs_are_paused_and_resumed(shell: Any, served: Served) -> None:
    dead_letter(served, 20)
    discard = ("dlq", "discard", "--all", "--yes", "--rate", "10", "--batch-size", "1", "--detach")
    job = str(shell.records(*discard)[0]["job"])
    assert shell.records("dlq", "jobs", "pause", job)[0]["state"] == "paused"
    assert shell.records("dlq", "jobs", "resume", job)[0]["state"] in ("queued", "running")
    assert shell.records("dlq", "jobs", "cancel", job)[0]["state"] == "cancelled"
    assert shell("dlq", "jobs", "resume", job).exit_code == 1
    assert shell("dlq", "jobs", "show", "777").exit_code == 3
