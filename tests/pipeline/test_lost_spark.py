"""Real workers and a real Java machine that are killed while they work on a batch: it is made once all the same."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.lake_histories import history, write_segments
from tests.pipeline.lake_reference import expected, tables_of
from unibus.capture.sources import open_sources
from unibus.errors import WorkerLost
from unibus.pipeline import run
from unibus.pipeline.lake import Lake

EVENTS = history(4, 80)

LOSES_ITS_MACHINE = """
import os, signal, sys
from unibus.capture.sources import open_sources
from unibus.errors import SparkLost
from unibus.pipeline.lake import Lake
from unibus.pipeline.run import run_all
from unibus.pipeline.session import open_session

lake, sources = Lake(sys.argv[2]), open_sources(sys.argv[1])
spark = open_session("local[1]", quick=True)
machine = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()

def kill(step, share):
    if step == "plan":
        os.kill(machine, signal.SIGKILL)

try:
    list(run_all(spark, lake, sources, progress=kill))
except SparkLost as error:
    print("lost:", error)
print(sum(result.events for result in run_all(open_session("local[1]", quick=True), lake, sources)))
"""

SERVES = """
import sys
from unibus.pipeline.serving.server import serving_session

spark, url = serving_session(int(sys.argv[1]), "local[1]")
print(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid(), url, flush=True)
sys.stdin.read()
"""
LOSES_ITS_SERVER = """
import os, signal, sys
from unibus.capture.sources import open_sources
from unibus.errors import SparkLost
from unibus.pipeline import session
from unibus.pipeline.lake import Lake
from unibus.pipeline.run import run_all

session.RETRIES_MAX = 1
lake, sources = Lake(sys.argv[2]), open_sources(sys.argv[1])
machine, url = input().split()
spark = session.open_session(connect=url)

def kill(step, share):
    if step == "plan":
        os.kill(int(machine), signal.SIGKILL)

try:
    list(run_all(spark, lake, sources, progress=kill))
except SparkLost as error:
    print("lost:", error, flush=True)
_, url = input().split()
print(sum(result.events for result in run_all(session.open_session(connect=url), lake, sources)), flush=True)
os._exit(0)
"""


@pytest.fixture
def capture(tmp_path: Path) -> str:
    return str(write_segments(tmp_path / "capture", EVENTS))


def dying(mark: Path, times: int) -> Any:
    """For `run.perform_all`, so often. Inside of a function, so that workers get it by its value."""
    perform_all = run.perform_all

    def kill_and_perform(tasks: list[Any], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open(mark, "ab") as file:
            file.write(b".")
        if mark.stat().st_size <= times:
            os.kill(os.getpid(), signal.SIGKILL)
        return perform_all(tasks, batches)

    return kill_and_perform


def test_a_worker_that_is_killed_costs_one_more_attempt(
    spark: SparkSession, tmp_path: Path, capture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "perform_all", dying(tmp_path / "mark", 1))
    lake = Lake(str(tmp_path / "lake"))
    [result] = run.run_all(spark, lake, open_sources(capture))
    assert result.events == len(EVENTS)
    assert tables_of(lake) == expected(EVENTS)


def test_a_worker_that_is_killed_each_time_is_one_line_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, capture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with monkeypatch.context() as patch:
        patch.setattr(run, "perform_all", dying(tmp_path / "mark", 1_000))
        with pytest.raises(WorkerLost) as caught:
            list(run.run_all(spark, lake, open_sources(capture)))
    assert len(str(caught.value).splitlines()) == 1
    assert lake.done() == 0
    list(run.run_all(spark, lake, open_sources(capture)))
    assert tables_of(lake) == expected(EVENTS)


def test_a_machine_that_is_killed_is_replaced_by_the_next_session(tmp_path: Path, capture: str) -> None:
    """In a process of its own: this one has a machine that the other tests share."""
    lake = str(tmp_path / "lake")
    ended = subprocess.run(
        [sys.executable, "-c", LOSES_ITS_MACHINE, capture, lake], capture_output=True, text=True, timeout=300
    )
    told = ended.stdout.splitlines()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert told[0].startswith("lost: the JVM of Spark ended during a job")
    assert told[1:] == [str(len(EVENTS))]
    assert tables_of(Lake(lake)) == expected(EVENTS)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def serving() -> "subprocess.Popen[str]":
    """A Spark Connect server. It writes the process of its machine, and its address."""
    command = [sys.executable, "-c", SERVES, str(free_port())]
    quick = {**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=quick)


def test_a_connect_server_that_is_killed_is_replaced_by_the_next_session(tmp_path: Path, capture: str) -> None:
    lake = str(tmp_path / "lake")
    with serving() as first, serving() as second:
        assert first.stdout is not None
        assert second.stdout is not None
        try:
            ended = subprocess.run(
                [sys.executable, "-c", LOSES_ITS_SERVER, capture, lake],
                input=first.stdout.readline() + second.stdout.readline(),
                capture_output=True,
                text=True,
                timeout=300,
            )
        finally:
            first.kill()
            second.kill()
    told = ended.stdout.splitlines()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert told[0].startswith("lost: the Spark Connect server ended during a job")
    assert told[1:] == [str(len(EVENTS))]
    assert tables_of(Lake(lake)) == expected(EVENTS)
