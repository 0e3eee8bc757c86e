"""What the operating system says about this process, by the names that Prometheus's own clients use.

Linux has all of it in /proc. Elsewhere what is not known is left out: a metric that is missing can be noticed, and a
zero would be believed.
"""

import os
import time
from functools import cache
from pathlib import Path
from typing import Final

from unibus.endpoints.http.monitoring.exposition import Family

try:
    import resource
except ImportError:  # Windows.
    resource = None  # type: ignore[assignment]

PROC: Final = Path("/proc")
_START_FIELD: Final = 22 - 3
"""`starttime` of proc(5), among the fields after the name of the program, which may have spaces in it."""
_RSS_FIELD: Final = 24 - 3


def process_families(proc: Path = PROC) -> list[Family]:
    """Memory, processor time, start and open files. Reading them takes microseconds for each hundred open files."""
    times = os.times()
    families = [_family("process_cpu_seconds_total", "Processor time.", round(times.user + times.system, 2), "counter")]
    try:
        memory = int(_fields(proc)[_RSS_FIELD]) * os.sysconf("SC_PAGE_SIZE")
        started_s = _started_s(proc)
        open_fds = len(os.listdir(proc / "self" / "fd"))
    except (OSError, IndexError, ValueError):
        return families
    families += [
        _family("process_resident_memory_bytes", "Memory that is in use.", memory),
        _family("process_start_time_seconds", "When the process began, in seconds since 1970.", started_s),
        _family("process_open_fds", "Open files and connections.", open_fds),
    ]
    if resource is not None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        families.append(_family("process_max_fds", "Open files and connections that are allowed.", most))
    return families


@cache
def _started_s(proc: Path) -> float:
    """Computed once: a clock that is adjusted must not look like a restart.

    Not by the time of the boot in /proc/stat, which a service may not see (ProcSubset=pid of systemd).
    """
    after_boot_s = int(_fields(proc)[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    return round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + after_boot_s, 2)


def _fields(proc: Path) -> list[str]:
    return (proc / "self" / "stat").read_text().rpartition(")")[2].split()


def _family(name: str, text: str, value: float, kind: str = "gauge") -> Family:
    family = Family(name, kind, text)
    family.add("", value)
    return family
