"""`unibus pipeline generate` writes capture directories."""

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.unit.cli.programs import PATIENCE_S
from unibus.capture.manifest import Manifest, is_capture
from unibus.cli.pipeline.generate import generate
from unibus.errors import UsageError

# A program with this command only: other tests cover the group.
app = typer.Typer()
app.command()(generate)


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_it_tells_what_it_made(tmp_path: Path) -> None:
    result = run("--messages", 300, "--out", tmp_path, "--domains", 2, "--channels", 5, "--bodies")
    assert (result.exit_code, result.stderr) == (0, "")
    told = json.loads(result.stdout)
    assert told["folders"] == [str(tmp_path / "shop"), str(tmp_path / "warehouse")]
    manifests = [Manifest.load(folder) for folder in told["folders"]]
    assert sum(manifest.last for manifest in manifests) == told["events"] > told["messages"] == 300
    assert all(segment.bodies is not None for manifest in manifests for segment in manifest.segments)


def test_when_it_began(tmp_path: Path) -> None:
    run("--messages", 10, "--out", tmp_path, "--start", "2025-03-01T00:00+00:00", "--span", "1h")
    (segment,) = Manifest.load(str(tmp_path / "shop")).segments
    assert segment.from_us == 1_740_787_200_000_000
    assert segment.to_us < segment.from_us + 3_600_000_000


@pytest.mark.parametrize(
    "words",
    [
        ["--span", 0],
        ["--span", 1e9],
        ["--span", "inf"],
        ["--span", "nan"],
        ["--channels", 99_999],
        ["--start", "never"],
    ],
)
def test_what_cannot_be_is_an_error_of_the_user(tmp_path: Path, words: list[object]) -> None:
    result = run("--messages", 10, "--out", tmp_path, *words)
    assert isinstance(result.exception, UsageError)
    assert list(tmp_path.iterdir()) == []


def test_when_it_began_is_in_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(time, "tzset"):
        pytest.skip("this system has no zone of a process")
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "America/New_York")
        time.tzset()
        run("--messages", 1, "--out", tmp_path, "--start", "2025-03-01", "--span", "1h")
    time.tzset()
    (segment,) = Manifest.load(str(tmp_path / "shop")).segments
    assert segment.from_us == 1_740_787_200_000_000


def test_a_folder_that_cannot_be_made(shell: Any) -> None:
    Path("file").touch()
    for out in ("file", "file/below", *(["/proc/below"] if sys.platform == "linux" else [])):
        result = shell("pipeline", "generate", "--messages", "1", "--out", out)
        assert (result.exit_code, result.stdout) == (4, "")
        assert result.stderr.endswith("hint: name another folder: --out DIR\n")
    assert [path.name for path in Path().iterdir()] == ["file"]


def test_a_missing_package_is_a_wrong_call(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "unibus.pipeline.generator.generate", None)
    result = shell("pipeline", "generate", "--messages", "1", "--out", "made")
    assert (result.exit_code, "'.[pipeline]'" in result.stderr) == (2, True)


def test_ended_before_its_end_it_tells_that_this_is_a_part(shell: Any) -> None:
    with shell.start("pipeline", "generate", "--messages", "20000000", "--domains", "1", "--out", "made") as running:
        try:
            ends_s = time.monotonic() + PATIENCE_S
            while not is_capture("made/shop"):
                assert time.monotonic() < ends_s, "nothing was written"
                time.sleep(0.01)
            running.send_signal(signal.SIGINT)
            output, errors = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
    assert (running.returncode, output) == (130, b"")
    last = Manifest.load("made/shop").last
    assert f"error: stopped before the end: {last:,} events are in 1 capture directory in made\n" in errors.decode()
