"""Kills processes that run the pipeline, at moments that a seed decides, and lets the next one go on."""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def run_and_kill(engine: str, captures: Path, lake: Path, kills: int, seed: int | str) -> int:
    """Start, kill with -9 in the middle, start again; the one after the last kill comes to its end. How many died."""
    chance = random.Random(seed)
    died = 0
    for left in range(kills, -1, -1):
        after = chance.randrange(1, 24) if left else None
        died += _one(engine, captures, lake, after, chance.random() * 0.03)
    return died


def _one(engine: str, captures: Path, lake: Path, after: int | None, more_s: float) -> bool:
    """Killed some time after so many steps, unless it has ended before."""
    command = [sys.executable, "-m", "tests.pipeline.lake_child", engine, str(captures), str(lake)]
    last = ""
    with tempfile.TemporaryFile("w+") as told:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True)
        assert child.stdout is not None
        try:
            for number, line in enumerate(child.stdout):
                last = line.strip()
                if after is not None and number >= after and last != "end":
                    time.sleep(more_s)  # To be killed within a step, not only between two.
                    child.kill()
                    break
        finally:
            child.wait()
            child.stdout.close()
        told.seek(0)
        assert after is not None or last == "end", told.read()[-2_000:]
    return child.returncode == -9
