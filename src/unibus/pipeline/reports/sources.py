"""Opens the sources of a lake, and closes them after use."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from unibus.capture.event_source import EventSource
from unibus.capture.sources import open_sources

if TYPE_CHECKING:
    from unibus.pipeline.lake import Lake


@contextlib.contextmanager
def opened_sources(lake: "Lake", keep_damaged: bool = False) -> Iterator[list[EventSource]]:
    """The sources of the last run; none for a new lake. See `open_sources` for `keep_damaged`."""
    places = lake.sources()
    sources = open_sources(places, keep_damaged) if places else []
    try:
        yield sources
    finally:
        for source in sources:
            source.close()
