"""Processor time is that of the whole family."""

import subprocess
import sys

from benchmarks.cpu import cpu_seconds

BUSY = "import time\nwhile time.process_time() < {seconds}: pass\n"


def test_children_and_their_children_are_counted_when_they_ended_and_before() -> None:
    before = cpu_seconds()
    grandchild = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY.format(seconds=0.3)!r}])"
    subprocess.run([sys.executable, "-c", grandchild], check=True)
    ended = cpu_seconds()
    assert ended - before >= 0.25
    with subprocess.Popen(
        [sys.executable, "-c", BUSY.format(seconds=0.3) + "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        running = cpu_seconds()
        assert running - ended >= 0.25
        assert 0.25 <= cpu_seconds(child.pid) < running
        child.communicate(b"\n")


def test_a_process_that_is_gone_costs_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert cpu_seconds(child.pid) == 0
