"""Minutes of kill -9 and of power cuts on captures, beside a bus that is killed too."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.crash import capture_cuts, capture_kills


def test_killed_captures_have_each_event_once(
    tmp_path: Path, seconds: float, report: Callable[[str], None], seed: str
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else tmp_path) as folder:
        tally = capture_kills.campaign(Path(folder), seed, 40, seconds / 4)
    counts = f"{tally.kills} kills, {tally.events} events, {tally.segments} segments"
    report(f"capture, kill -9 (seed {seed}): {counts}, wrong: {len(tally.wrong)}")
    assert tally.wrong == []


def test_captures_on_a_disk_without_power_have_each_event_once(
    tmp_path: Path, seconds: float, report: Callable[[str], None], seed: str
) -> None:
    cuts = capture_cuts.campaign(tmp_path, seed, rounds=max(20, round(seconds * 2)))
    report(f"capture, power cuts (seed {seed}): {cuts} cuts")
