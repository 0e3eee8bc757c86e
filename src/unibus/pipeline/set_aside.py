"""Sources that a run leaves out so that it can read the others: damaged, or another history than the lake has read.

The lake keeps the rows and the position of such a domain. Each run checks the source again: after a repair it is read
from that position on. Until then none of its events is counted.

    sources ──▶ usable ──▶ plan of the batch          the others: reported, each with its reason

If no source is left, the first error ends the run: a run that can read nothing has failed.
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
    """`domain` is "" if the source is too damaged to know it."""

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
    """The sources that can be read from the end of the last batch on. Without `report`, the first error is raised."""
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
    check_distinct(found)  # A source that could be opened only now may have the domain of another.
    return found


def checked(source: EventSource, before: Sequence[HistoryRange]) -> EventSource:
    """The source, opened. Raises one of ERRORS if it is damaged, or is not the history that was read before."""
    opened = reopened(source)
    known = {each.domain: each for each in before}
    end_of(opened, known.get(opened.domain, HistoryRange(opened.domain, 0, 0)))
    return opened


def those_that_open(sources: Sequence[EventSource]) -> list[EventSource]:
    """For a batch that has to be finished as it was planned; it raises if it needs a source that does not open."""
    found = []
    for source in sources:
        with contextlib.suppress(*ERRORS):
            found.append(reopened(source))
    return found
