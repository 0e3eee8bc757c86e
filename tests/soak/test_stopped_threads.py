"""Threads stopped at locks for minutes instead of seconds: other schedules in every run.

On plain Python in any case: compiled code takes no locks on its fast path, and there is nothing to stop a thread at.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.cancellation.races import RACES, Race
from tests.cancellation.schedules import Schedule, drawn, run
from unibus.core.atomic import COMPILED

ROOT = Path(__file__).parents[2]


def test_threads_that_are_stopped_at_locks_lose_nothing(
    tmp_path: Path, seconds: float, seed: str, report: Callable[[str], None]
) -> None:
    if COMPILED:
        run_plain(seconds, seed)
        report(f"threads stopped at locks: on plain Python, seed {seed}")
        return
    chance = random.Random(seed)
    end_s = time.monotonic() + seconds / 4
    counts: dict[Race, Counter[str]] = {}
    number = stops = 0
    try:
        while time.monotonic() < end_s:
            race = chance.choice(RACES)
            schedule = Schedule(drawn(chance, counts[race]) if race in counts else [])
            run(race, schedule, tmp_path / str(number))
            counts[race] = counts.get(race, Counter()) | schedule.counts
            number += 1
            stops += len(schedule.parked)
    finally:
        report(f"threads stopped at locks: {number} runs, {stops} stops, seed {seed}")


def run_plain(seconds: float, seed: str) -> None:
    """This very file in a process that sees the source and not the compiled package."""
    seen = {"PYTHONPATH": str(ROOT / "src"), "SECONDS": str(seconds), "SEED": seed}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "soak", "-p", "no:cacheprovider", __file__]
    ended = subprocess.run(command, cwd=ROOT, env={**os.environ, **seen}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-10_000:]
