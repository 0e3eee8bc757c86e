"""Instants as options write them: their time zone, and texts that are ambiguous."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from unibus.cli.terminal.moments import moment_of
from unibus.errors import UsageError

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _far_from_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not hasattr(time, "tzset"):
        pytest.skip("this system has no zone of a process")
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


def test_without_a_zone_it_is_that_of_the_machine_or_the_one_that_the_command_shows() -> None:
    assert moment_of("--since", "2026-01-31T07:00") == NOON
    assert moment_of("--since", "2026-01-31T12:00", zone=UTC) == NOON
    assert moment_of("--since", "12:00", NOON, zone=UTC) == NOON


def test_a_zone_that_was_given_holds() -> None:
    for zone in (None, UTC):
        assert moment_of("--since", "2026-01-31T13:00+01:00", zone=zone) == NOON
        assert moment_of("--since", "2026-01-31T12:00Z", zone=zone) == NOON


@pytest.mark.parametrize("text", ["1767654000", " 1767654000.5", "1767654000000", "20260131"])
def test_a_bare_number_that_may_be_a_date_is_refused(text: str) -> None:
    """Read as seconds ago, it would select all of history."""
    with pytest.raises(UsageError, match=r"--since .* could be a duration or a date"):
        moment_of("--since", text, NOON)


def test_few_seconds_need_no_unit() -> None:
    assert (NOON - moment_of("--since", "90", NOON)).total_seconds() == 90
