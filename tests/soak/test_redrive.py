"""Minutes of kill -9 on processes that bring dead letters back."""

from collections.abc import Callable
from pathlib import Path

from tests.crash.redrive import campaign


def test_letters_are_neither_lost_nor_doubled(
    tmp_path: Path, seconds: float, report: Callable[[str], None], seed: str
) -> None:
    score = campaign(tmp_path, seed, seconds / 2)
    report(score.line(f"kill -9 while dead letters are brought back (seed {seed})"))
    assert score.findings == []
