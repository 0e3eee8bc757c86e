"""Random topologies against the model, with other seeds each time and longer, for as long as SECONDS allow."""

import time
from collections.abc import Callable

import pytest

from tests.property.topologies.cases import check
from tests.property.topologies.pair import KINDS

STEPS = 120


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_does_what_the_model_does(kind: str, seconds: float, seed: str, report: Callable[[str], None]) -> None:
    first = int(seed, 16)
    until = time.monotonic() + seconds / 4
    cases = 0
    try:
        while cases == 0 or time.monotonic() < until:
            check(kind, first + cases, STEPS)
            cases += 1
    finally:
        report(f"topologies on {kind}: {cases * STEPS} steps of {cases} cases, seeds from {first}, SEED={seed}")
