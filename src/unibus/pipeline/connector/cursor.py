"""Named cursors: a stream says how far it is, so that its lag shows where the events come from.

A cursor tells and does not decide: where a query goes on is in its checkpoint. So one that cannot be shown is told in
the log and stops nothing.
"""

import contextlib
import logging
import os

from unibus.capture.event_source import EventSource
from unibus.capture.sources import CaptureSource
from unibus.errors import BusError
from unibus.stores.schemes import open_history
from unibus.stores.sqlite.outside_cursors import show_cursor, shown_cursors

log = logging.getLogger("unibus")


def move_cursor(source: EventSource, name: str, seq: int) -> None:
    """Beside the store's file, or in the capture directory."""
    try:
        if isinstance(source, CaptureSource):
            show_cursor(_inside(source.where), name, seq)
        else:
            with contextlib.closing(open_history(source.where)) as reader:
                reader.show_cursor(name, seq)
    except (OSError, BusError) as error:
        log.warning("cursor %r of %s does not show %d: %s", name, source.where, seq, error)


def cursors_of(folder: str) -> dict[str, int]:
    """Where the readers of a capture directory stand."""
    return shown_cursors(_inside(folder))


def _inside(folder: str) -> str:
    return os.path.join(folder, "capture")
