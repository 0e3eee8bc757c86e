"""A source that could not be opened refuses every call with its reason."""

from types import TracebackType

import pytest

from unibus.capture.event_source import EventSource
from unibus.capture.unopened import UnopenedSource
from unibus.errors import CaptureDamaged


def depth(traceback: TracebackType | None) -> int:
    return 0 if traceback is None else 1 + depth(traceback.tb_next)


def test_refusing_again_and_again_keeps_no_frames() -> None:
    def opener(place: str) -> EventSource:
        raise AssertionError("not asked for")

    source = UnopenedSource("nowhere", CaptureDamaged("the manifest is damaged"), opener)
    depths = []
    for call in (source.last, source.last, source.first, source.last):
        with pytest.raises(CaptureDamaged, match="the manifest is damaged") as caught:
            call()
        depths.append(depth(caught.value.__traceback__))
    assert len(set(depths)) == 1
    source.close()
