"""Processor time is that of the whole family."""

import subprocess
import sys

from benchmarks.cpu import Family, cpu_seconds

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


def test_a_child_whose_end_its_parent_ignores_keeps_what_it_has_cost() -> None:
    busy = BUSY.format(seconds=0.3) + "print(flush=True); input()"
    careless = (
        "import signal, subprocess, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {busy!r}])\nsys.stdin.readline()\n"
    )
    with subprocess.Popen([sys.executable, "-c", careless], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        family = Family(parent.pid)
        parent.stdout.readline()
        before = family.seconds()
        assert before >= 0.25
        parent.stdin.write(b"\n")  # Either of them takes it; the child ends by it, or with its parent.
        parent.stdin.flush()
        parent.communicate(b"\n")
        assert family.seconds() >= 0.25
