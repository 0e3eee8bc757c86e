"""Races in which threads are stopped before locks. A sample; the campaign is in tests/soak."""

import random
from pathlib import Path

import pytest

from tests.cancellation.races import RACES, Race
from tests.cancellation.schedules import Schedule, drawn, run
from unibus.core.atomic import COMPILED

pytestmark = pytest.mark.skipif(COMPILED, reason="compiled code takes no locks on its fast path")

SAMPLES = 4


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
def test_a_thread_that_is_stopped_at_a_lock_loses_nothing(race: Race, folder: Path) -> None:
    chance = random.Random(race.__name__)
    counts = run(race, Schedule(), folder / "free").counts
    for number in range(SAMPLES):
        run(race, Schedule(drawn(chance, counts)), folder / str(number))
