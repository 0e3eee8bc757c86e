"""Minutes of kill -9 on processes that work on a real file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.kills import campaign


@pytest.mark.parametrize("ending", ["db", "json"])
def test_killed_processes_lose_nothing_that_was_answered(
    tmp_path: Path, seconds: float, report: Callable[[str], None], seed: str, ending: str
) -> None:
    tally = campaign(tmp_path, seed, seconds / 4, ending=ending)
    report(tally.line(f"kill -9 on .{ending} (seed {seed})"))
    assert tally.findings.all() == []
