"""Minutes of power cuts on simulated disks, in the middle of commits, of snapshots and of recoveries."""

from collections.abc import Callable

import pytest

from tests.crash.power import MACHINES, campaign


@pytest.mark.parametrize("kind", MACHINES)
def test_power_cuts_lose_nothing_that_was_answered(
    seconds: float, report: Callable[[str], None], seed: str, kind: str
) -> None:
    tally = campaign(seed, seconds / 4, kind=MACHINES[kind])
    report(tally.line(f"power cuts on {kind} (seed {seed})"))
    assert tally.findings.all() == []
