"""Random topologies against the model: queues, topics, rules with actions, forwards, time, restarts and crashes.

A sample with seeds that never change, so that a failure is the same for everyone; `tests/soak/test_topologies.py` draws
others. A failure prints the command that repeats it.
"""

import pytest

from tests.property.topologies.cases import check

STEPS = 40
SAMPLE = {"memory": 150, "sqlite": 90, "jsonfile": 60}
PART = 30
PARTS = [(kind, first) for kind, count in SAMPLE.items() for first in range(0, count, PART)]


@pytest.mark.parametrize(("kind", "first"), PARTS)
def test_a_store_does_what_the_model_does(kind: str, first: int) -> None:
    for seed in range(first, first + PART):
        check(kind, seed, STEPS)
