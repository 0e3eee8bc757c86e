"""An exception at every call of every operation on a store: all of the points that tests/crash has a sample of.

`make soak` runs this file on plain Python and on a compiled package with fault points, not on the compiled package that
the rest of tests/soak runs on.
"""

import os
import time
from pathlib import Path
from random import Random

import pytest

from tests.crash.test_exceptions import KINDS, OPERATIONS, problems_at

SECONDS = float(os.environ.get("SECONDS", "60"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_exception_at_every_call_leaves_a_store_whole_or_stops_it(folder: Path) -> None:
    """In an order drawn anew each time, until the time is over; the report says how many cases were tried."""
    cases = [(name, kind, every) for name in OPERATIONS for kind, every in KINDS]
    Random(time.time_ns()).shuffle(cases)
    ends = time.monotonic() + SECONDS
    tried = trials = 0
    for name, kind, every in cases:
        if time.monotonic() > ends and tried:
            break
        below = folder / f"{tried}"
        below.mkdir()

        def all_of(points: int) -> list[int]:
            nonlocal trials
            trials += points
            return list(range(1, points + 1))

        assert problems_at(name, kind, every, below, all_of) == []
        tried += 1
    print(f"\nexceptions: {trials} points of {tried} of {len(cases)} cases, none left a store half changed")  # noqa: T201
