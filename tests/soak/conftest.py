"""Everything in this folder takes minutes, so it runs with `make soak` and never with the other tests.

`SECONDS` in the environment says how long the crash campaigns last, a quarter of it each; `SEED` repeats one of them.
"""

import logging
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LINES = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Called with the items of the whole run, not only with ours.
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.soak)


@pytest.fixture
def seconds() -> float:
    return float(os.environ.get("SECONDS") or 60)


@pytest.fixture
def seed() -> str:
    """Another one for each run; the line that is reported names it."""
    return os.environ.get("SEED") or secrets.token_hex(4)


@pytest.fixture
def report(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """One line for the end of the run, whether the test passes or not."""
    return pytestconfig.stash.setdefault(LINES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = terminalreporter.config.stash.get(LINES, [])
    if lines:
        terminalreporter.section("campaigns")
    for line in lines:
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def nothing_logged() -> Iterator[None]:
    """pytest keeps every record until its test is over, with the error in it, and all that the error's frames hold.

    Stores that stop are the business of these campaigns: after half an hour that was more than the machine had.
    """
    logger = logging.getLogger("unibus")
    logger.disabled = True
    yield
    logger.disabled = False
