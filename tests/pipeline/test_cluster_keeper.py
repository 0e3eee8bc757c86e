"""A test that starts a cluster leaves none behind, whatever becomes of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pipeline.cluster import ROOT, Children, run

PATIENCE_S = 30.0
SLEEPER = ["sh", "-c", "sleep 600 & echo sleeping $! & wait"]
"""What has a child, as a Worker has its executors."""


def _is_alive(pid: int) -> bool:
    """A zombie counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait_until_ended(pids: list[int]) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while any(map(_is_alive, pids)):
        assert time.monotonic() < ends_s, "a process was left behind"
        time.sleep(0.01)


def test_the_children_of_the_kept_end_too(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        parent = children.start("sleeper", SLEEPER)
        child = int(children.wait_for("sleeper", r"sleeping (\d+)")[0])
        assert _is_alive(parent)
        assert _is_alive(child)
    _wait_until_ended([parent, child])


def test_who_ignores_a_request_is_made_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.pipeline.cluster.END_S_MAX", 0.2)
    with Children(tmp_path) as children:
        deaf = children.start("deaf", ["sh", "-c", "trap '' TERM; echo ready; while true; do sleep 1; done"])
        children.wait_for("deaf", "ready")
    _wait_until_ended([deaf])


def test_one_that_ends_instead_of_answering_is_told(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        children.start("short", ["true"])
        with pytest.raises(RuntimeError, match="short said 0 of 1 times 'ready'"):
            children.wait_for("short", "ready")


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killing_the_tests_ends_what_they_started(tmp_path: Path, blow: signal.Signals) -> None:
    names = "from pathlib import Path; from tests.pipeline.cluster import run"
    code = f"{names}; run('job', Path({str(tmp_path)!r}), {SLEEPER})"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL) as tests:
        try:
            child = _sleeping(tmp_path / "job.log")
        finally:
            tests.send_signal(blow)
    _wait_until_ended([child])


def _sleeping(log: Path) -> int:
    ends_s = time.monotonic() + PATIENCE_S
    while not log.is_file() or not log.read_text().endswith("\n"):
        assert time.monotonic() < ends_s, "it did not start"
        time.sleep(0.01)
    return int(log.read_text().split()[1])


def test_a_job_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="job ended with 3: no such luck"):
        run("job", tmp_path, ["sh", "-c", "echo no such luck; exit 3"])
    run("job", tmp_path, ["true"])
    assert os.listdir(tmp_path) == ["job.log"]
