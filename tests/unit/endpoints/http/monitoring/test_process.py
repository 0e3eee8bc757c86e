"""What a scrape says about the process itself, compared with what the standard library says."""

import os
import resource
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from unibus.endpoints.http.monitoring import process
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
    assert values(tmp_path)["process_resident_memory_bytes"] == 24 * os.sysconf("SC_PAGE_SIZE")


def test_the_start_does_not_move_when_the_clock_does(monkeypatch: pytest.MonkeyPatch) -> None:
    booted_s = float(Path("/proc/stat").read_text().partition("\nbtime ")[2].split()[0])
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    process._started_s.cache_clear()
    first = values()["process_start_time_seconds"]
    assert first == pytest.approx(booted_s + ticks / os.sysconf("SC_CLK_TCK"), abs=2)
    monkeypatch.setattr(process.time, "time", lambda: 0.0)
    assert values()["process_start_time_seconds"] == first


def test_where_nothing_is_known_nothing_is_claimed(tmp_path: Path) -> None:
    assert set(values(tmp_path)) == {"process_cpu_seconds_total"}
