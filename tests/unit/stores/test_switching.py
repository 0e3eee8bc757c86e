"""The switch interval while stores are open, and after them."""

import sys
from collections.abc import Iterator

import pytest

from unibus.stores.engine.switch_interval import INTERVAL_S, SwitchInterval


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield
    sys.setswitchinterval(before)


def test_the_last_store_puts_it_back() -> None:
    switching = SwitchInterval()
    first, second = object(), object()
    switching.quicken(first)
    switching.quicken(second)
    assert sys.getswitchinterval() == pytest.approx(INTERVAL_S)
    switching.restore(first)
    switching.restore(first)  # A second time: its close() was interrupted.
    assert sys.getswitchinterval() == pytest.approx(INTERVAL_S)
    switching.restore(second)
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_one_that_is_shorter_already_is_left_alone() -> None:
    sys.setswitchinterval(0.0001)
    switching = SwitchInterval()
    switching.quicken(switching)
    assert sys.getswitchinterval() == pytest.approx(0.0001, abs=2e-6)
    switching.restore(switching)
    assert sys.getswitchinterval() == pytest.approx(0.0001, abs=2e-6)


def test_what_somebody_chose_meanwhile_stays() -> None:
    switching = SwitchInterval()
    switching.quicken(switching)
    sys.setswitchinterval(0.002)
    switching.restore(switching)
    assert sys.getswitchinterval() == pytest.approx(0.002)
