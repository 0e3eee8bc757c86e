"""Processor time of a process and of everything that it has started, as the kernel counts it.

A Spark driver is a Python, a virtual machine below it and more Pythons below that; what they cost together is what a
user pays. Time of children that have ended is counted with the parent that has waited for them.
"""

import os
from pathlib import Path

PROCESSES = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(*pids: int) -> float:
    """Of this process, or of those, with all descendants. Children that go without being waited for are lost."""
    told = {each: times for each in _pids() if (times := _times(each)) is not None}
    mine = set(pids or (os.getpid(),))
    while grown := {each for each, (parent, _) in told.items() if parent in mine} - mine:
        mine |= grown
    return sum(told[each][1] for each in mine if each in told) / TICKS


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROCESSES.iterdir() if entry.name.isdigit()]


def _times(pid: int) -> tuple[int, int] | None:
    """The parent, and the ticks of the process and of the children it has waited for; None when it is gone."""
    try:
        text = (PROCESSES / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # The name before may hold anything.
    return int(fields[1]), sum(int(field) for field in fields[11:15])
