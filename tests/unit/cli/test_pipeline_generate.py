"""`unibus pipeline generate` makes capture directories from the command line."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from unibus.capture.manifest import Manifest
from unibus.cli.pipeline_generate import generate
from unibus.errors import UsageError

# A program of this one command: which group it stands in is told by others.
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
    run("--messages", 10, "--out", tmp_path, "--start", "2025-03-01T00:00+00:00", "--hours", 1)
    (segment,) = Manifest.load(str(tmp_path / "shop")).segments
    assert segment.from_us == 1_740_787_200_000_000
    assert segment.to_us < segment.from_us + 3_600_000_000


@pytest.mark.parametrize("words", [["--hours", 0], ["--channels", 99_999], ["--start", "never"]])
def test_what_cannot_be_is_an_error_of_the_user(tmp_path: Path, words: list[object]) -> None:
    result = run("--messages", 10, "--out", tmp_path, *words)
    assert isinstance(result.exception, UsageError)
    assert list(tmp_path.iterdir()) == []
