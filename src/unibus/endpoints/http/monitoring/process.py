"""Metrics of this process from the operating system, with the names of Prometheus's own clients.

Linux has all of them in /proc. On other systems unknown metrics are omitted: a missing metric is noticed, a zero would
be believed.
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
"""`starttime` of proc(5), counted from the field after the program's name, which may contain spaces."""
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
        _family("process_resident_memory_bytes", "Resident memory.", memory),
        _family("process_start_time_seconds", "When the process started, in seconds since 1970.", started_s),
        _family("process_open_fds", "Open files and connections.", open_fds),
    ]
    if resource is not None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        families.append(_family("process_max_fds", "Limit of open files and connections.", most))
    return families


@cache
def _started_s(proc: Path) -> float:
    """When the process started. Computed once: an adjusted clock must not look like a restart.

    Not from the boot time in /proc/stat, which a service may not be able to read (ProcSubset=pid of systemd).
    """
    after_boot_s = int(_fields(proc)[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    return round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + after_boot_s, 2)


def _fields(proc: Path) -> list[str]:
    return (proc / "self" / "stat").read_text().rpartition(")")[2].split()


def _family(name: str, text: str, value: float, kind: str = "gauge") -> Family:
    family = Family(name, kind, text)
    family.add("", value)
    return family
