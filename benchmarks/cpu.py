"""Processor time of a process and of everything that it has started, as the kernel counts it.

A Spark driver is a Python, a virtual machine below it and more Pythons below that; what they cost together is what a
user pays. Time of children that have ended is counted with the parent that has waited for them.
"""

import os
import signal
from pathlib import Path

PROCESSES = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


class Family:
    """A process, or several, with all descendants. Who asks now and then hears of those too that go unnoticed: the
    children of a parent that ignores their end, as Spark's Python daemon does, take their time with them."""

    def __init__(self, *pids: int) -> None:
        self._first = set(pids or (os.getpid(),))
        self._seen: dict[int, int] = {}
        """Ticks of children that are never waited for, by process: those that ended stay in it."""

    def seconds(self) -> float:
        """So far."""
        told = {each: times for each in _pids() if (times := _times(each)) is not None}
        mine = set(self._first)
        while grown := {each for each, (parent, _) in told.items() if parent in mine} - mine:
            mine |= grown
        careless = {parent for parent in mine if _ignores_children(parent)}
        self._seen |= {each: told[each][1] for each in mine & told.keys() if told[each][0] in careless}
        others = sum(told[each][1] for each in mine & told.keys() - self._seen.keys())
        return (others + sum(self._seen.values())) / TICKS


def cpu_seconds(*pids: int) -> float:
    """Of this process, or of those, with all descendants, by one look."""
    return Family(*pids).seconds()


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


def _ignores_children(pid: int) -> bool:
    try:
        text = (PROCESSES / str(pid) / "status").read_text()
    except OSError:
        return False
    ignored = next(line.split()[1] for line in text.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored, 16) >> (signal.SIGCHLD - 1) & 1)
