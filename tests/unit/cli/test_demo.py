"""`unibus demo` runs in a terminal and to a pipe, and ends at once and cleanly on Ctrl-C."""

import logging
import re
import signal
import subprocess
import threading
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.unit.cli.programs import PATIENCE_S, command, environment
from unibus.bus import build_kind
from unibus.cli.demo.stages import STAGES
from unibus.cli.demo.table import DemoRow, DemoWatch, lines, shown
from unibus.cli.main import app
from unibus.core import COMPILED
from unibus.sync import MessageBus

COMMAND = command("demo")
LAST_LINE = re.compile(r"[\d,]+ published, [\d,]+ dispatched, [\d,]+ dead-lettered in \d+\.\d s")
ENVIRONMENT = {**environment(), "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def piped() -> str:
    done = subprocess.run(
        [*COMMAND, "--seconds", "1.5"], capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def row(output: str, channel: str) -> list[int]:
    """published, dispatched, waiting, retried, dead-lettered of one channel in the last table."""
    found = re.search(rf"^{re.escape(channel)} +(.+)$", output, re.MULTILINE)
    assert found is not None
    return [int(cell.replace(",", "")) for cell in found[1].split()[:5]]


def test_a_pipe_gets_plain_lines_and_a_summary(piped: str) -> None:
    assert "\x1b" not in piped
    titles = [line for line in piped.splitlines() if re.match(r"\d/\d ", line)]
    assert titles == [f"{number}/{len(STAGES)} {stage.title}" for number, stage in enumerate(STAGES, 1)]
    assert LAST_LINE.fullmatch(piped.splitlines()[-1])


def test_the_figures_of_the_demo_add_up(piped: str) -> None:
    published, dispatched, waiting, _, dead = row(piped, "orders")
    assert (dispatched, waiting, dead) == (3 * published, 0, 0)
    published, dispatched, waiting, retried, dead = row(piped, "payments")
    assert published == dispatched + dead + waiting
    assert retried > 0
    assert dead > 0
    assert "MaxDeliveryCountExceeded after 3 attempts: card " in piped


def test_the_burst_tells_whether_the_bus_is_compiled(piped: str) -> None:
    assert re.search(r"[\d,]{5,} messages per second to a handler on a worker thread", piped)
    assert f"unibus is {'compiled' if COMPILED else 'plain Python'}" in piped
    assert COMPILED or "`pip install .` compiles it, and makes it about ten times as fast" in piped


def test_the_burst_of_a_plain_package_tells_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_kind, "COMPILED", False)
    monkeypatch.setattr(build_kind, "is_checkout", lambda: False)
    monkeypatch.setattr("unibus.cli.demo.stages.COMPILED", False)
    output = CliRunner().invoke(app, ["demo", "--seconds", "0.2"], prog_name="unibus").stdout
    assert "unibus is plain Python, about ten times slower than compiled; this is Python 3." in output
    assert "install it again with `pip install -v`, which shows why it was not compiled" in output


def test_nothing_is_left_behind() -> None:
    log = logging.getLogger("unibus")
    before = (list(log.handlers), log.propagate)
    others = set(threading.enumerate())  # A server of other tests may run in this process.
    result = CliRunner().invoke(app, ["demo", "--seconds", "0.2"], prog_name="unibus")
    assert (result.exit_code, result.stderr) == (0, "")
    assert (list(log.handlers), log.propagate) == before
    for thread in set(threading.enumerate()) - others:
        if thread.name.startswith("unibus"):
            thread.join(PATIENCE_S)  # A thread that is ending may take a moment.
            assert not thread.is_alive(), thread.name


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_a_time_that_is_none_is_refused(seconds: str) -> None:
    result = CliRunner().invoke(app, ["demo", "--seconds", seconds], prog_name="unibus")
    assert (result.exit_code, result.stdout) == (2, "")


def test_ctrl_c_ends_a_piped_demo_with_a_summary() -> None:
    demo = subprocess.Popen(
        [*COMMAND, "--seconds", "600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    assert demo.stdout is not None
    first = demo.stdout.readline()  # It is running.
    demo.send_signal(signal.SIGINT)
    rest, errors = demo.communicate(timeout=PATIENCE_S)
    assert first.startswith("1/")
    assert (demo.returncode, "Traceback" in errors) == (128 + signal.SIGINT, False)
    assert LAST_LINE.fullmatch(rest.splitlines()[-1])


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


def test_plain_asks_for_lines_in_a_terminal_too(terminal: Any) -> None:
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
