"""What a scrape says about the process itself, compared with what the standard library says."""

import os
import resource
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from unibus.endpoints.http.monitoring.process import process_families


def values(proc: Path = Path("/proc")) -> dict[str, float]:
    text = b"".join([family.encoded() for family in process_families(proc)]).decode()
    return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}


def test_a_process_knows_its_memory_and_files() -> None:
    before = len(os.listdir("/proc/self/fd"))
    found = values()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert peak / 100 < found["process_resident_memory_bytes"] <= peak * 1.1
    assert abs(found["process_open_fds"] - before) <= 1
    assert found["process_max_fds"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert 0 < found["process_start_time_seconds"] <= time.time() + 1
    assert found["process_cpu_seconds_total"] > 0


def test_a_program_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "self" / "fd").mkdir(parents=True)
    fields = ["S", *map(str, range(4, 60))]
    (tmp_path / "self" / "stat").write_text(f"7 (a) b (c) {' '.join(fields)}\n")
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1000\n")
    found = values(tmp_path)
    assert found["process_resident_memory_bytes"] == 24 * os.sysconf("SC_PAGE_SIZE")
    assert found["process_start_time_seconds"] == 1000 + round(22 / os.sysconf("SC_CLK_TCK"), 2)


def test_where_nothing_is_known_nothing_is_claimed(tmp_path: Path) -> None:
    assert set(values(tmp_path)) == {"process_cpu_seconds_total"}
