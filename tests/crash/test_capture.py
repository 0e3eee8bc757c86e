"""Captures that are cut off: at every step by the power, at any moment by kill -9. Each event is captured once."""

import tempfile
from pathlib import Path

import pytest

from tests.crash import capture_kills
from tests.crash.capture_cuts import campaign, cut_and_go_on, steps_of, working
from unibus.errors import CaptureDamaged


def test_a_cut_at_every_step_leaves_each_event_once(tmp_path: Path) -> None:
    with working(tmp_path / "bus.db", "cuts") as work:
        work.steps(12)
        expected = work.events()
        steps = steps_of(work, "cuts")
        assert steps > 40
        for step in range(1, steps + 1):
            cut_and_go_on(work, expected, f"cuts{step}", [step])


def test_cuts_one_after_the_other(tmp_path: Path) -> None:
    assert campaign(tmp_path, "campaign", 15) > 15


def test_a_disk_that_does_not_sync_is_found(tmp_path: Path) -> None:
    """The test can fail: where a sync does nothing, something is lost that counted."""
    with pytest.raises((AssertionError, CaptureDamaged)):
        campaign(tmp_path, "campaign", 15, lying=True)


def test_what_is_captured_survives_kills_of_the_capture_and_of_the_bus(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else tmp_path) as folder:
        tally = capture_kills.campaign(Path(folder), "kill", 15)
    assert tally.wrong == []
    assert tally.kills == 15
    assert tally.sealed >= 1
    assert tally.events > 100
