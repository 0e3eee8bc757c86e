"""`unibus capture` as people and programs call it, and the capture that a bus starts."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.capture.captures import bodies, captured
from tests.unit.cli.conftest import shell, terminal  # noqa: F401 - fixtures
from tests.unit.cli.owners import owner_of
from tests.unit.cli.programs import PATIENCE_S, environment
from unibus.capture import child as capture_child
from unibus.capture.manifest import Manifest
from unibus.cli.capture import capture as module
from unibus.cli.capture.capture import bytes_of
from unibus.cli.capture.view import moment
from unibus.errors import ExtraMissing, UsageError
from unibus.sync import MessageBus


@pytest.fixture(autouse=True)
def _not_nice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that run in this process must not lower its priority for good."""
    monkeypatch.setattr(module, "_lower_priority", lambda: None)


@pytest.fixture
def filled(shell: Any) -> Path:  # noqa: F811
    with MessageBus("bus.db") as bus:
        for number in range(10):
            bus.send("orders", {"n": number, "card": "4111"})
        for message in bus.receive_batch("orders", 4, timeout=0):
            message.complete()
    return Path(shell.folder)


def wait_for(happened: Any, what: str) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < ends, what
        time.sleep(0.01)


def last(folder: Path) -> int:
    return Manifest.load(str(folder)).last if (folder / "capture.json").exists() else 0


def test_once_takes_all_there_is(filled: Path, shell: Any) -> None:  # noqa: F811
    [record] = shell.records("capture", "bus.db", "--once")
    assert record == {"folder": "unibus-capture", "events": 19, "segments": 1, "missed": 0, "last": 19, "behind": 0}
    assert [row["seq"] for row in captured(filled / "unibus-capture")] == list(range(1, 20))
    [record] = shell.records("capture", "sqlite:///bus.db", "--once")
    assert (record["events"], record["last"]) == (0, 19)


def test_what_is_kept_is_remembered(filled: Path, shell: Any) -> None:  # noqa: F811
    said = ("--redact", "orders=fields:card", "--bodies-keep", "7d", "--keep", "400d")
    shell.records("capture", "bus.db", "cap", "--once", *said)
    shell.records("capture", "bus.db", "cap", "--once", "--keep", "none")
    [status] = shell.records("capture", "--status", "bus.db", "cap")
    assert (status["keep_s"], status["bodies_keep_s"], status["redact"]) == (None, 604_800.0, ["orders=fields:card"])
    assert {row["body"] for row in bodies(filled / "cap")} == {f'{{"n":{n},"card":"***"}}'.encode() for n in range(10)}
    shell.records("capture", "bus.db", "cap", "--once", "--redact", "none", "--no-bodies")
    about = Manifest.load("cap").about
    assert about.settings == {"bodies": False, "bodies_keep_s": 604_800.0}
    assert len(about.changed) == 2


def test_status_and_compacting(filled: Path, shell: Any) -> None:  # noqa: F811
    shell.records("capture", "bus.db", "cap", "--once", "--rows", "3")
    [status] = shell.records("capture", "--status", "cap")
    assert (status["events"], status["lag_events"], status["running"]) == (19, None, None)
    assert status["segments"] > 2
    [record] = shell.records("capture", "--compact", "cap")
    assert (record["before"], record["after"]) == (status["segments"], 1)
    with MessageBus("bus.db") as bus:
        bus.send("orders", 1)
    [status] = shell.records("capture", "--status", "bus.db", "cap")
    assert (status["segments"], status["lag_events"]) == (1, 1)
    assert status["lag_s"] > 0


def test_a_person_reads_the_status(filled: Path, shell: Any, terminal: Any) -> None:  # noqa: F811
    shell.records("capture", "bus.db", "cap", "--once", "--redact", "orders=drop")
    shown = terminal("capture", "--status", "bus.db", "cap")
    assert shown.read_all() == 0
    for text in ("not running", "19 in 1 segment,", "1 to 19", "lag  none", "events for ever", "orders=drop"):
        assert text in shown.output
    as_json = terminal("capture", "--status", "cap", "--json")
    assert as_json.read_all() == 0
    assert json.loads(as_json.output)["events"] == 19


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("capture",), 2, "no store is given"),
        (("capture", "nothing.db"), 4, "file nothing.db does not exist"),
        (("capture", "memory://"), 2, "keeps messages in memory only"),
        (("capture", "jsonfile:///.", "--once"), 4, "can only be read by the bus that owns it"),
        (("capture", "bus.db", "s3://bucket/history", "--once"), 2, "s3:// is not supported"),
        (("capture", "--status", "s3://bucket/history"), 2, "s3:// is not supported"),
        (("capture", "--compact", "abfss://a@b/history"), 2, "abfss:// is not supported"),
        (("capture", "--status", "nowhere"), 4, "no capture directory"),
        (("capture", "--compact", "nowhere"), 4, "no capture directory"),
        (("capture", "--status", "bus.db"), 4, "no capture directory"),
        (("capture", "--status", "cap", "bus.db"), 2, "the store comes first"),
        (("capture", "--compact", "bus.db", "cap"), 2, "--compact takes one argument"),
        (("capture", "--compact", "bus.db"), 4, "bus.db is a file, not a capture directory"),
        (("capture", "nothing.db"), 4, "`unibus capture URL [DIR]` or UNIBUS_URL names another store"),
        (("capture", "memory://"), 2, "name a file: unibus capture bus.db"),
        (("capture", "bus.db", "bus.db.lock"), 4, "is a file, not a folder"),
        (("capture", "bus.db", "bus.db/below"), 4, "is a file, not a folder"),
        (("capture", "bus.db", "."), 2, ". is not a capture directory: it contains 'bus.db'"),
        (("capture", "bus.db", "--redact", "orders"), 2, "not a redaction rule"),
        (("capture", "bus.db", "--every", "soon"), 2, "--every 'soon' is not a duration"),
        (("capture", "bus.db", "--bytes", "many"), 2, "--bytes 'many' is not a size"),
        (("capture", "bus.db", "--bodies-keep", "x"), 2, "--bodies-keep 'x' is not a duration"),
    ],
)
@pytest.mark.usefixtures("filled")
def test_what_is_wrong_is_said_in_one_line(shell: Any, arguments: tuple[str, ...], code: int, text: str) -> None:  # noqa: F811
    before = sorted(Path().iterdir())
    result = shell(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert text in result.stderr
    assert "--url" not in result.stderr
    assert len(result.stderr.splitlines()) <= 2
    assert sorted(Path().iterdir()) == before
    assert not Path("unibus-capture").exists()


def test_a_start_that_was_ended_at_once_is_continued(filled: Path, shell: Any) -> None:  # noqa: F811
    for name in ("segments", "bodies", "lost+found"):
        (filled / "cap" / name).mkdir(parents=True)
    for name in ("capture.lock", "capture.json.new"):
        (filled / "cap" / name).touch()
    [record] = shell.records("capture", "bus.db", "cap", "--once")
    assert record["events"] == 19


def test_a_person_reads_times_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "America/New_York")
        time.tzset()
        text = moment(1_767_571_200_000_000)
    time.tzset()
    assert text == "2026-01-05 00:00:00"


def test_sizes() -> None:
    assert [bytes_of("--bytes", text) for text in ("5", "2KB", "1.5MB", "3 gb")] == [5, 2_000, 1_500_000, 3 * 10**9]
    for text in ("", "0", "-1", "5XB", "KB"):
        with pytest.raises(UsageError):
            bytes_of("--bytes", text)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_seals_what_there_is(shell: Any, number: signal.Signals) -> None:  # noqa: F811
    """Beside the owner, which continues. Events that were not due to be sealed for an hour are sealed."""
    path = Path(shell.folder) / "bus.db"
    with owner_of(path) as owner:
        owner("fill orders 5")
        with shell.start("capture", "bus.db", "cap", "--every", "1h", "--rows", "6") as running:
            wait_for(lambda: last(Path("cap")) >= 6, "nothing was captured")
            owner("fill orders 3")
            wait_for(lambda: owned_cursor(path) >= 6, "the cursor is not shown")
            running.send_signal(number)
            output, errors = running.communicate(timeout=PATIENCE_S)
        assert (running.returncode, errors) == (128 + number, b"")
        assert json.loads(output)["last"] == last(Path("cap"))


def owned_cursor(path: Path) -> int:
    found = path.with_name("bus.db-cursors") / "capture"
    return int(json.loads(found.read_bytes())["seq"]) if found.exists() else 0


def test_a_second_capture_is_refused_with_the_holder(filled: Path, shell: Any) -> None:  # noqa: F811
    with shell.start("capture", "bus.db", "cap") as running:
        try:
            wait_for(lambda: last(filled / "cap") > 0, "nothing was captured")
            result = shell("capture", "bus.db", "cap", "--once")
            assert result.exit_code == 4
            assert f"process {running.pid}" in result.stderr
            [status] = shell.records("capture", "--status", "cap")
            assert status["running"] == running.pid
        finally:
            running.terminate()
            running.communicate(timeout=PATIENCE_S)


def test_a_person_sees_how_it_goes(filled: Path, terminal: Any) -> None:  # noqa: F811
    running = terminal("capture", "bus.db", "cap", "--every", "100ms".replace("100ms", "1s"))
    running.read_until("19 events")
    running.interrupt()
    assert running.read_all() == 128 + signal.SIGINT
    assert "captured 19 events in 1 segment\r" in running.output
    assert last(filled / "cap") == 19


def test_without_the_extra_it_says_what_to_install(
    shell: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    result = shell("capture", "bus.db")
    assert (result.exit_code, "'.[capture]'" in result.stderr) == (2, True)
    monkeypatch.setattr(capture_child, "find_spec", lambda name: None)
    with pytest.raises(ExtraMissing, match="pyarrow"):
        MessageBus("sqlite:///bus.db?capture=cap")
    assert not Path("bus.db").exists()


# Started with the bus


@pytest.fixture
def _path_of_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])


@pytest.mark.usefixtures("shell", "_path_of_the_child")
def test_a_bus_with_a_capture_has_all_of_it_when_it_is_closed() -> None:
    with MessageBus("sqlite:///bus.db?capture=cap&domain=shop") as bus:
        bus.send_many("orders", range(500))
        seq = bus._runtime.queues().store.health().last_seq
    assert last(Path("cap")) >= seq > 500
    assert Manifest.load("cap").domain == "shop"


PROGRAM = """
import sys
from unibus.sync import MessageBus
bus = MessageBus("sqlite:///bus.db?capture=cap")
bus.send_many("orders", range(100))
print(bus._runtime.shutdown.capture.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.usefixtures("shell", "_path_of_the_child")
def test_it_ends_with_the_process_of_the_bus() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert Path(f"/proc/{pid}").exists() or sys.platform != "linux"
        program.kill()
        program.communicate(timeout=PATIENCE_S)
    wait_for(lambda: last(Path("cap")) >= 101, "it did not read to the end")
    wait_for(lambda: not is_alive(pid), "it did not end")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.usefixtures("shell", "_path_of_the_child")
def test_a_capture_that_ends_too_early_is_told(caplog: pytest.LogCaptureFixture) -> None:
    Path("cap").write_text("a file is in the way")
    with caplog.at_level(logging.WARNING), MessageBus("sqlite:///bus.db?capture=cap") as bus:
        bus.send("orders", 1)
        wait_for(lambda: "ended with exit code" in caplog.text, "no line in the log")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("sqlite:///bus.db?capture=", "is empty"),
        ("jsonfile:///x?capture=y", "jsonfile://"),
        ("sqlite:///bus.db?capture=s3://bucket/history", "s3:// is not supported"),
    ],
)
@pytest.mark.usefixtures("shell")
def test_what_cannot_be_captured_is_refused_before_anything_is_made(url: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        MessageBus(url)
    assert not list(Path().iterdir())
