"""Named cursors: a streaming query publishes its position, so that the source of the events can show its lag.

A cursor is only information: the query itself resumes from its checkpoint. So a cursor that cannot be written is
logged, and the query continues.
"""

import contextlib
import logging
import os

from unibus.capture.event_source import EventSource
from unibus.capture.sources import CaptureSource
from unibus.errors import BusError
from unibus.stores.schemes import open_history
from unibus.stores.sqlite.outside_cursors import show_cursor

log = logging.getLogger("unibus")


def move_cursor(source: EventSource, name: str, seq: int) -> None:
    """Beside the store's file, or in the capture directory."""
    try:
        if isinstance(source, CaptureSource):
            show_cursor(os.path.join(source.where, "capture"), name, seq)
        else:
            with contextlib.closing(open_history(source.where)) as reader:
                reader.show_cursor(name, seq)
    except (OSError, BusError) as error:
        log.warning("cursor %r of %s could not be moved to %d: %s", name, source.where, seq, error)
