"""Sources that a run leaves out so that the others go on: a damaged one, or another history than the lake has read.

What the lake has of such a domain stays, and so does where it was read up to. Each run looks again: a source that was
repaired is read on from there. Nothing is guessed about it meanwhile, and none of it is counted.

    sources ──▶ usable ──▶ plan of the batch          the others: reported, each with its reason

Where no source is left, the first error ends the run: a run that can read nothing has failed.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from unibus.capture.event_source import EventSource
from unibus.capture.sources import check_distinct
from unibus.capture.unopened import reopened
from unibus.errors import BusError, CaptureDamaged, LakeMismatch, StoreDamaged
from unibus.pipeline.plan import HistoryRange, end_of

log = logging.getLogger("unibus")

ERRORS: Final = (CaptureDamaged, LakeMismatch, StoreDamaged)


class SetAside(msgspec.Struct, frozen=True):
    """`domain` is "" where it cannot be known."""

    domain: str
    where: str
    reason: str
    hint: str

    def __str__(self) -> str:
        name = f"{self.domain!r} ({self.where})" if self.domain else self.where
        return f"{name} is set aside, and nothing of it is read: {self.reason}"


ReportSetAside = Callable[[SetAside], None]


def log_set_aside(found: SetAside) -> None:
    log.warning("%s; %s", found, found.hint)


def usable(
    sources: Sequence[EventSource], before: Sequence[HistoryRange], report: ReportSetAside | None
) -> list[EventSource]:
    """Those that can be read on from where the last batch ended. Without `report` the first that cannot raises."""
    found: list[EventSource] = []
    aside: list[tuple[SetAside, BusError]] = []
    for source in sources:
        try:
            found.append(checked(source, before))
        except ERRORS as error:
            if report is None:
                raise
            aside.append((SetAside(source.domain, source.where, error.what, error.hint), error))
    if aside and not found:
        raise aside[0][1]
    for each, _ in aside:
        assert report is not None
        report(each)
    check_distinct(found)  # One that was opened by now may have a name that another has.
    return found


def checked(source: EventSource, before: Sequence[HistoryRange]) -> EventSource:
    """The source, opened. Raises one of ERRORS if it is damaged, or is not the history that was read before."""
    opened = reopened(source)
    known = {each.domain: each for each in before}
    end_of(opened, known.get(opened.domain, HistoryRange(opened.domain, 0, 0)))
    return opened


def those_that_open(sources: Sequence[EventSource]) -> list[EventSource]:
    """For a batch that was begun and has to be finished as it was planned: if it needs another, it raises that."""
    found = []
    for source in sources:
        with contextlib.suppress(*ERRORS):
            found.append(reopened(source))
    return found
