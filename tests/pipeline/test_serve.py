"""A server that is up: it answers our commands at once and others by Connect, and what it leaves when it is killed."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.asked_lake import Asked, made_in
from tests.unit.cli.programs import PATIENCE_S, command, environment
from unibus.capture.schema import table_of
from unibus.capture.segments import SegmentWriter
from unibus.core.lifecycle.events import Event
from unibus.pipeline.reports.request import ReportRequest
from unibus.pipeline.serving.client import address_of, ask, is_alive

# The command itself, which then prints what it has imported.
LIGHT = """
import sys
from unibus.cli.main import app
try:
    app(prog_name="unibus")
finally:
    heavy = {"pyspark", "pyarrow", "pandas", "deltalake", "numpy"} & set(sys.modules)
    print(sorted(heavy), file=sys.stderr)
"""
CONNECT = """
import os, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
from unibus.pipeline.lake import Lake
Lake(sys.argv[2]).register(spark)
print(spark.range(7).count(), spark.table("messages").count() > 0, flush=True)
os._exit(0)
"""
LESS_COMPILING = "-XX:TieredStopAtLevel=1"
"""A server compiles its queries with full optimisation, which takes most of the time of one that runs for a minute."""
# Both are half past one in the zone of the server, on the day when clocks go back.
MOMENTS = "SELECT timestamp'2026-11-01 05:30:00Z' AS a, array(timestamp'2026-11-01 06:30:00Z') AS b"
TOLD = '{"a":"2026-11-01T05:30:00+00:00","b":["2026-11-01T06:30:00+00:00"]}\n'


def elsewhere() -> dict[str, str]:
    return {**environment(), "TZ": "America/New_York"}


class Served:
    def __init__(self, asked: Asked, process: "subprocess.Popen[str]", told: dict[str, Any]) -> None:
        self.asked = asked
        self.process = process
        self.told = told

    def light(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", LIGHT, "pipeline", *arguments, "--lake", str(self.asked.path)],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=120,
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    asked = made_in(tmp_path_factory.mktemp("served"), 300)
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port = tried.getsockname()[1]
    errors = open(asked.path / "errors.txt", "w+")  # noqa: SIM115
    process = subprocess.Popen(
        command("pipeline", "serve", "--every", "1s", "--port", str(port), "--lake", str(asked.path)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**elsewhere(), "JDK_JAVA_OPTIONS": LESS_COMPILING},
        cwd=asked.path.parent,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (asked.path / "errors.txt").read_text()
        yield Served(asked, process, json.loads(line))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        errors.close()


def test_commands_are_answered_without_spark_of_their_own(served: Served) -> None:
    found = served.light("report", "channels", "--limit", "1000")
    assert (found.returncode, found.stderr) == (0, "[]\n")
    completed = sum(json.loads(line)["completed"] for line in found.stdout.splitlines())
    assert completed == len(served.asked.of("completed"))
    found = served.light("sql", "SELECT count(*) AS n FROM events")
    assert (found.stdout, found.stderr) == (f'{{"n":{len(served.asked.events)}}}\n', "[]\n")
    assert served.light("sql", MOMENTS).stdout == TOLD
    wanted = served.asked.of("completed")[0]["message_id"]
    found = served.light("trace", wanted)
    assert found.stderr == "[]\n"
    assert {json.loads(line)["message_id"] for line in found.stdout.splitlines()} == {wanted}


def test_what_it_refuses_is_told_as_ever(served: Served) -> None:
    found = served.light("sql", "SELECT chanel FROM messages")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("error: there is no column 'chanel'\nhint: did you mean channel?\n")
    assert served.light("sql", "SELECT * FROM nothing").stderr.startswith("error: there is no table 'nothing'\n")
    assert not (served.asked.path.parent / "spark-warehouse").exists()  # Spark would make one there.
    reply = ask(served.asked.path, ReportRequest("rm"))
    assert reply is not None
    assert reply.refusal is not None
    assert "there is no report 'rm'" in reply.refusal.what


def test_it_is_a_connect_server_for_those_who_have_the_token(served: Served) -> None:
    url = served.told["connect"]
    lake, plain = str(served.asked.path), url.partition("/;")[0]
    calls = [
        [sys.executable, "-c", CONNECT, url, lake],
        [sys.executable, "-c", CONNECT, plain, lake],
        # Our own command takes it out of the lake's folder.
        command("pipeline", "report", "latency", "--limit", "1000", "--lake", lake, "--connect", plain),
        command("pipeline", "sql", "SELECT chanel FROM messages", "--lake", lake, "--connect", plain),
        command("pipeline", "sql", MOMENTS, "--lake", lake, "--connect", plain),
    ]
    answers = [subprocess.run(call, capture_output=True, text=True, env=elsewhere(), timeout=240) for call in calls]
    assert (answers[0].returncode, answers[0].stdout) == (0, "7 True\n")
    assert answers[1].returncode != 0
    assert (answers[2].returncode, answers[2].stderr) == (0, "")
    rows = [json.loads(line) for line in answers[2].stdout.splitlines()]
    assert sum(row["completed"] for row in rows) == len(served.asked.of("completed"))
    assert answers[3].stderr == "error: there is no column 'chanel'\nhint: did you mean channel?\n"
    assert (answers[4].stdout, answers[4].stderr) == (TOLD, "")


def test_a_second_one_is_refused(served: Served) -> None:
    done = subprocess.run(
        command("pipeline", "serve", "--lake", str(served.asked.path)),
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert "already runs" in done.stderr


def test_it_brings_the_tables_up_to_date(served: Served) -> None:
    domain = served.asked.events[0]["domain"]
    with contextlib.closing(SegmentWriter(str(served.asked.captures / domain), domain)) as writer:
        event = Event(writer.last + 1, served.asked.events[-1]["ts"], domain, "late", "sent", 1, "late-1", size=7)
        writer.write(table_of([event]))
        last = writer.last
    ends_s = time.monotonic() + PATIENCE_S
    while served.asked.lake.positions()[domain] < last:
        assert time.monotonic() < ends_s
        time.sleep(0.05)
    found = served.light("sql", "SELECT message_id, state FROM messages WHERE channel = 'late'")
    assert found.stdout == '{"message_id":"late-1","state":"active"}\n'
    assert served.light("report", "channels", "--channel", "late").stdout.count("\n") == 1


def test_what_a_killed_one_leaves_is_recognised(served: Served) -> None:
    """The last test: it kills the server. Its Java machine ends with it."""
    address = address_of(served.asked.path)
    assert address is not None
    assert is_alive(address)
    served.process.kill()
    served.process.wait()
    assert os.path.exists(address.socket)
    assert not is_alive(address)
    assert ask(served.asked.path, ReportRequest("channels")) is None
    assert not Path(f"/proc/{served.told['pid']}").exists()
