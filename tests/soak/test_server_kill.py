"""A hundred kills of `unibus serve` under load, or more if there is time."""

from collections.abc import Callable
from pathlib import Path

from tests.crash.server_kills import campaign

KILLS = 100


def test_a_killed_server_loses_nothing_that_it_answered(
    tmp_path: Path, seconds: float, report: Callable[[str], None], seed: str
) -> None:
    tally = campaign(tmp_path, seed, kills=KILLS, seconds=seconds / 2)
    report(tally.line(f"unibus serve, kill -9 (seed {seed})"))
    assert tally.findings.all() == []
    assert tally.counts["kills"] + tally.counts["kills at the start"] >= KILLS
