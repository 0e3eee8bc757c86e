"""Minutes of power cuts on simulated disks, in the middle of commits, of snapshots and of recoveries."""

from collections.abc import Callable

from tests.crash.power import campaign


def test_power_cuts_lose_nothing_that_was_answered(seconds: float, report: Callable[[str], None], seed: str) -> None:
    tally = campaign(seed, seconds / 2)
    report(tally.line(f"power cuts (seed {seed})"))
    assert tally.findings.all() == []
