"""The commands that ask Spark, as programs call them: the shared session answers, so that none is started for each."""

import csv
import io
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from tests.pipeline.asked_lake import Asked, made_in
from tests.unit.cli.programs import PATIENCE_S, command, environment
from unibus.cli.main import app
from unibus.pipeline.lake import Lake


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return made_in(tmp_path_factory.mktemp("asked"), 300)


def unibus(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *arguments], prog_name="unibus")


def records(*arguments: str) -> list[dict[str, Any]]:
    result = unibus(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.usefixtures("spark")
def test_a_report_for_programs(asked: Asked) -> None:
    lake = ("--lake", str(asked.path))
    found = records("report", "latency", "--limit", "1000", *lake)
    assert sum(each["completed"] for each in found) == len(asked.of("completed"))
    result = unibus("report", "latency", "--limit", "1", "--csv", *lake)
    rows = list(csv.reader(io.StringIO(result.stdout)))
    assert (result.exit_code, len(rows), rows[0][:3]) == (0, 2, ["domain", "channel", "completed"])
    assert result.stderr == "there are more than 1 row; --limit shows more\n"
    nothing = unibus("report", "latency", "--channel", "no.such.*", *lake)
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (3, "", "")


@pytest.mark.usefixtures("spark")
def test_sql_for_programs(asked: Asked) -> None:
    lake = ("--lake", str(asked.path))
    found = records("sql", "SELECT kind, count(*) AS n FROM events GROUP BY 1", *lake)
    assert {each["kind"]: each["n"] for each in found}["completed"] == len(asked.of("completed"))
    wrong = unibus("sql", "SELECT chanel FROM messages", *lake)
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert wrong.stderr == "error: there is no column 'chanel'\nhint: did you mean channel?\n"
    assert unibus("sql", "SELECT 1 WHERE 1 = 2", *lake).exit_code == 3


def test_run_and_rebuild(spark: SparkSession, asked: Asked, tmp_path: Path) -> None:
    lake = ("--lake", str(tmp_path / "lake"))
    found = records("run", "--once", "--from", str(asked.captures), "--max-events", "200", *lake)
    assert sum(each["events"] for each in found) == len(asked.events)
    assert [each["batch"] for each in found] == list(range(1, len(found) + 1))
    assert found[-1]["left"] == 0
    assert len(found) > 1
    assert unibus("run", "--once", *lake).stdout == ""  # It remembers where it reads, and nothing is new.
    made = records("rebuild", "--yes", *lake)
    assert sum(each.get("events", 0) for each in made) == len(asked.events)
    counts = Lake(str(tmp_path / "lake")).folder("channel_minute")
    assert sum(counts.read(counts.files())["n"].to_pylist()) == len(asked.events)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--master", "spark://127.0.0.1:1"], 4, "no Spark master answers at spark://127.0.0.1:1"),
        (["--master", "spork"], 2, "is not a Spark address"),
        (["--connect", "sc://127.0.0.1:1"], 4, "no Spark Connect server answers"),
        (["--connect", "http://x"], 2, "is not a Spark address"),
        (["--master", "local[2]", "--connect", "sc://x"], 2, "cannot be used together"),
    ],
)
def test_a_spark_that_is_not_there(arguments: list[str], code: int, told: str, asked: Asked) -> None:
    result = unibus("report", "latency", "--lake", str(asked.path), *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert told in result.stderr


def test_the_whole_way_in_processes_of_their_own(tmp_path: Path) -> None:
    """generate, run, report: quiet on the error stream, and nothing left running."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command("pipeline", *arguments),
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment(),
            timeout=300,
        )

    made = call("generate", "--messages", "200", "--out", "made", "--channels", "4")
    assert (made.returncode, made.stderr) == (0, "")
    ran = call("run", "--once", "--from", "made")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["events"] == json.loads(made.stdout)["events"]
    told = call("report", "latency", "--limit", "1000")
    assert (told.returncode, told.stderr) == (0, "")
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert all(0 < row["p50_us"] <= row["p99_us"] <= row["max_us"] for row in rows)
    assert rows
    ends_s = time.monotonic() + PATIENCE_S
    while _machines_of(tmp_path):  # They end by themselves, in a moment.
        assert time.monotonic() < ends_s
        time.sleep(0.05)


def _machines_of(folder: Path) -> list[str]:
    """JVMs that were started there and still run, on systems that list them. One that writes the archive may run."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inside = (process / "cwd").resolve() == folder
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if inside and b"SparkSubmit" in words and b"ArchiveClassesAtExit" not in words:
            found.append(process.name)
    return found
