"""`unibus demo` runs in a terminal and to a pipe, and ends at once and cleanly on Ctrl-C.

Its kill is a real one; tests/crash has the campaigns that prove what it shows. Here: its counts are honest, and no
process is left behind.
"""

import contextlib
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.unit.cli.programs import PATIENCE_S, command, environment
from unibus.bus import build_kind
from unibus.cli.demo import demo, kills, sender
from unibus.cli.demo.kills import SENT_LEAST
from unibus.cli.demo.stages import STAGES
from unibus.cli.demo.table import DemoRow, DemoWatch, lines, shown
from unibus.cli.main import app
from unibus.core import COMPILED
from unibus.errors import StoreFailed
from unibus.sync import MessageBus

COMMAND = command("demo")
LAST_LINE = re.compile(r"^[\d,]+ published, [\d,]+ dispatched, [\d,]+ dead-lettered in \d+\.\d s\r?$", re.MULTILINE)
VERDICT = re.compile(r"acknowledged ([\d,]+), found ([\d,]+), lost ([\d,]+)")
SENDING = re.compile(r"process (\d+) sends")
ENVIRONMENT = {**environment(), "PYTHONUNBUFFERED": "1"}
ONLY_KILLS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from unibus.cli.demo import demo, stages
demo.STAGES = [each for each in stages.STAGES if each.title == "kill -9"]
from unibus.cli.main import app
app(["demo", "--seconds", "600"], prog_name="unibus")
"""


@pytest.fixture(scope="module")
def piped(tmp_path_factory: pytest.TempPathFactory) -> str:
    done = subprocess.run(
        [*COMMAND, "--seconds", "1.5"],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "TMPDIR": str(tmp_path_factory.mktemp("temporary"))},
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a demo of this test, also in another process, puts its store."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def row(output: str, channel: str) -> list[int]:
    """published, dispatched, waiting, retried, dead-lettered of one channel in the last table."""
    found = re.search(rf"^{re.escape(channel)} +(.+)$", output, re.MULTILINE)
    assert found is not None
    return [int(cell.replace(",", "")) for cell in found[1].split()[:5]]


def test_a_pipe_gets_plain_lines_and_a_summary(piped: str) -> None:
    assert "\x1b" not in piped
    titles = [line for line in piped.splitlines() if re.match(r"\d/\d ", line)]
    assert titles == [f"{number}/{len(STAGES)} {stage.title}" for number, stage in enumerate(STAGES, 1)]
    assert LAST_LINE.search(piped)
    assert [line for line in piped.splitlines() if line != line.rstrip()] == []


def test_the_figures_of_the_demo_add_up(piped: str) -> None:
    published, dispatched, waiting, _, dead = row(piped, "orders")
    assert (dispatched, waiting, dead) == (3 * published, 0, 0)
    published, dispatched, waiting, retried, dead = row(piped, "payments")
    assert (published, waiting, retried, dead) == (40, 0, 28, 14)
    assert "10 dead-lettered messages brought back, 10 handled, 4 left" in piped
    assert dispatched == published - 4


def test_the_first_line_says_what_is_running(piped: str) -> None:
    kind = "compiled" if COMPILED else "plain Python"
    assert re.match(rf"unibus \S+ \({kind}.*\), Python 3\.", piped)
    assert COMPILED or "`pip install .` compiles it, and makes it about ten times as fast" in piped
    assert re.search(r"[\d,]{5,} messages per second to a handler on a worker thread", piped)


def test_every_acknowledged_message_is_found_after_the_kill(piped: str) -> None:
    verdicts = VERDICT.findall(piped)
    assert len(verdicts) == 2  # After the kill, and in the summary.
    acknowledged, found, lost = (int(text.replace(",", "")) for text in verdicts[0])
    assert acknowledged == found >= SENT_LEAST
    assert lost == 0


def test_the_trace_goes_from_publish_to_the_dead_letter_queue_and_back(piped: str) -> None:
    trace = piped.partition("5/7 trace")[2].partition("6/7")[0]
    steps = ["routed, 1 copy", "to charge (delivery 1)", "returned: abandoned", "(delivery 2)", "(delivery 3)"]
    places = [trace.find(step) for step in [*steps, "dead-lettered: MaxDeliveryCountExceeded"]]
    assert places == sorted(places)
    assert -1 not in places
    assert "the traced message is now: completed" in piped


def test_the_commands_at_the_end_work(piped: str) -> None:
    # `unibus`, or the running Python where the command is not on the PATH.
    starts = (["unibus"], [sys.executable, "-m", "unibus"])
    lines = [shlex.split(line) for line in piped.splitlines() if " --url " in line]
    commands = [line[len(start) :] for line in lines for start in starts if line[: len(start)] == start]
    assert [command[0] for command in commands] == ["trace", "dlq", "query"]
    for arguments in commands:
        result = CliRunner().invoke(app, arguments, prog_name="unibus")
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout


def test_a_plain_package_says_what_to_do(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_kind, "COMPILED", False)
    monkeypatch.setattr(build_kind, "is_checkout", lambda: False)
    monkeypatch.setattr(demo, "COMPILED", False)
    monkeypatch.setattr(demo, "STAGES", STAGES[:1])
    output = CliRunner().invoke(app, ["demo", "--seconds", "0.1"], prog_name="unibus").stdout
    assert re.match(r"unibus \S+ \(plain Python, about ten times slower than compiled\), Python 3\.", output)
    assert "install it again with `pip install -v`, which shows why it was not compiled" in output
    assert list(temporary.iterdir()) == []  # No stage needed a store.


def test_a_lost_message_is_reported_and_is_a_failure(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "STAGES", [each for each in STAGES if each.title == "kill -9"])
    stored = kills.stored_numbers
    monkeypatch.setattr(kills, "stored_numbers", lambda bus: stored(bus) - {1, 2})
    result = CliRunner().invoke(app, ["demo", "--seconds", "0.1"], prog_name="unibus")
    assert result.exit_code == 1
    acknowledged, found, lost = (int(text.replace(",", "")) for text in VERDICT.findall(result.stdout)[-1])
    assert (acknowledged, lost) == (found + 2, 2)


def test_nothing_is_left_behind_but_the_store_that_was_to_be_kept(tmp_path: Path, temporary: Path) -> None:
    log = logging.getLogger("unibus")
    before = (list(log.handlers), log.propagate)
    others = set(threading.enumerate())  # A server of other tests may run in this process.
    folder = tmp_path / "new" / "kept"
    again = ["demo", "--seconds", "0.2", "--keep", str(folder)]
    result = CliRunner().invoke(app, again, prog_name="unibus")
    assert (result.exit_code, result.stderr) == (0, "")
    assert (list(log.handlers), log.propagate) == before
    for thread in set(threading.enumerate()) - others:
        if thread.name.startswith("unibus"):
            thread.join(PATIENCE_S)  # A thread that is ending may take a moment.
            assert not thread.is_alive(), thread.name
    assert [path.name for path in temporary.iterdir()] == ["new"]
    assert f"The store is {folder / 'demo.db'}." in result.stdout
    kept = (folder / "demo.db").read_bytes()
    refused = CliRunner().invoke(app, again, prog_name="unibus")
    assert refused.exit_code == 2
    assert "already has a demo.db" in refused.stderr
    assert (folder / "demo.db").read_bytes() == kept


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_a_time_that_is_none_is_refused(seconds: str) -> None:
    result = CliRunner().invoke(app, ["demo", "--seconds", seconds], prog_name="unibus")
    assert (result.exit_code, result.stdout) == (2, "")


def test_ctrl_c_ends_a_piped_demo_with_a_summary() -> None:
    demo = subprocess.Popen(
        [*COMMAND, "--seconds", "600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    assert demo.stdout is not None
    first = next(line for line in demo.stdout if line.startswith("1/"))  # It is running.
    demo.send_signal(signal.SIGINT)
    rest, errors = demo.communicate(timeout=PATIENCE_S)
    assert first == f"1/{len(STAGES)} {STAGES[0].title}\n"
    assert (demo.returncode, "Traceback" in errors) == (128 + signal.SIGINT, False)
    assert LAST_LINE.search(rest)


def test_ctrl_c_while_the_sender_runs_leaves_no_process(temporary: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", ONLY_KILLS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, "TMPDIR": str(temporary)},
    )
    assert demo.stdout is not None
    sender = next(int(found[1]) for line in demo.stdout if (found := SENDING.search(line)))
    os.kill(sender, 0)  # It runs.
    demo.send_signal(signal.SIGINT)
    rest, errors = demo.communicate(timeout=PATIENCE_S)
    assert (demo.returncode, errors) == (128 + signal.SIGINT, "")
    assert LAST_LINE.search(rest)
    with pytest.raises(ProcessLookupError):
        os.kill(sender, 0)


def test_a_sender_whose_reader_has_ended_ends(tmp_path: Path) -> None:
    program = [sys.executable, "-P", "-m", sender.__name__, f"sqlite:///{tmp_path}/a.db", "parcels", "1"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert int(running.stdout.readline()) <= sender.TASKS
        running.stdout.close()
        assert (running.wait(PATIENCE_S), running.stderr.read()) == (0, b"")


def test_a_sender_that_cannot_start_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    with contextlib.closing(kills.Sender(f"sqlite:///{tmp_path}", 1)) as running:
        running.start()
        running.join()
        with pytest.raises(StoreFailed, match=r"ended by itself: .*StoreUnavailable"):
            running.check()


def test_a_terminal_gets_a_live_table_and_its_cursor_back_after_ctrl_c(terminal: Any) -> None:
    live = terminal("demo", "--seconds", "600", columns=100)
    live.read_until("orders")
    assert "\x1b[?25l" in live.output  # The cursor is hidden while the table is redrawn.
    live.interrupt()
    assert live.read_all() == 128 + signal.SIGINT
    after = live.output.rpartition("\x1b[?25h")[2]
    assert "rate/s" not in after
    assert LAST_LINE.search(after)
    assert "Traceback" not in live.output


def test_a_terminal_shows_each_result_once(terminal: Any, temporary: Path) -> None:
    live = terminal("demo", "--seconds", "0.5")
    assert live.read_all() == 0
    assert len(VERDICT.findall(live.output)) == 2
    assert live.output.count("SELECT last_error") == 1
    assert LAST_LINE.search(live.output)


def test_plain_asks_for_lines_in_a_terminal_too(terminal: Any, temporary: Path) -> None:
    plain = terminal("demo", "--seconds", "0.2", "--plain", columns=100)
    assert plain.read_all() == 0
    assert "\x1b" not in plain.output
    assert LAST_LINE.search(plain.output)


def test_rates_are_those_of_the_last_second() -> None:
    now_s = [0.0]
    with MessageBus() as bus:
        watch = DemoWatch(bus, lambda: now_s[0])
        bus.subscribe("a", lambda message: None, dispatch="inline")

        def rate_after(seconds: float, messages: int) -> float:
            for _ in range(messages):
                bus.publish("a")
            now_s[0] += seconds
            return watch.rows()[0].rate_per_s

        assert rate_after(0.0, 0) == 0.0
        assert rate_after(0.5, 100) == 200.0
        assert rate_after(0.5, 100) == 200.0
        assert rate_after(0.5, 0) == 100.0
        assert rate_after(5.0, 0) == 0.0


def test_a_row_shows_what_its_channel_went_through() -> None:
    with MessageBus() as bus:
        bus.create_channel("kept")
        bus.publish("kept", 1)
        bus.subscribe("asked", lambda message: 1, group="answer")
        assert bus.request("asked") == 1
        bus.drain()
        rows = DemoWatch(bus).rows()
    # Without the channel for replies.
    assert [(row.channel, row.published, row.dispatched, row.waiting) for row in rows] == [
        ("kept", 1, 0, 1),
        ("asked", 1, 1, 0),
    ]
    assert rows[0].p50_us is None


def test_lines_stand_in_columns() -> None:
    head, line = lines([DemoRow("c", 1_234, 5, 6, 7, 8, 9.0, None, 1_500.0)])
    assert len(head) == len(line)
    assert line.split() == ["c", "1,234", "5", "6", "7", "8", "–", "1.5", "ms"]


@pytest.mark.parametrize(("us", "text"), [(None, "–"), (0.4, "0 µs"), (999.0, "999 µs"), (2_500_000.0, "2.5 s")])
def test_latencies_are_short(us: float | None, text: str) -> None:
    assert shown(us) == text
