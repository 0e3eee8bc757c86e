"""What the operating system says about this process, by the names that Prometheus's own clients use.

Linux has all of it in /proc. Elsewhere what is not known is left out: a metric that is missing can be noticed, and a
zero would be believed.
"""

import os
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
        fields = (proc / "self" / "stat").read_text().rpartition(")")[2].split()
        booted_s = int((proc / "stat").read_text().partition("\nbtime ")[2].split()[0])
        open_fds = len(os.listdir(proc / "self" / "fd"))
    except (OSError, IndexError, ValueError):
        return families
    started_s = booted_s + int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    memory = int(fields[_RSS_FIELD]) * os.sysconf("SC_PAGE_SIZE")
    families += [
        _family("process_resident_memory_bytes", "Memory that is in use.", memory),
        _family("process_start_time_seconds", "When the process began, in seconds since 1970.", round(started_s, 2)),
        _family("process_open_fds", "Open files and connections.", open_fds),
    ]
    if resource is not None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        families.append(_family("process_max_fds", "Open files and connections that are allowed.", most))
    return families


def _family(name: str, text: str, value: float, kind: str = "gauge") -> Family:
    family = Family(name, kind, text)
    family.add("", value)
    return family
