"""The scale of priorities."""

import pytest

from unibus.core.envelope.message import Message
from unibus.core.envelope.priority import Priority, checked_priority
from unibus.errors import PriorityInvalid


def test_the_named_levels_and_their_order() -> None:
    levels = [Priority.CRITICAL, Priority.HIGH, Priority.NORMAL, Priority.LOW, Priority.BACKGROUND]
    assert levels == [0, 25, 50, 75, 100]
    assert Message.new("c").priority == Priority.NORMAL


@pytest.mark.parametrize("level", [0, 1, 254, 255])
def test_every_whole_number_of_the_scale_is_a_priority(level: int) -> None:
    assert checked_priority(level) == level


@pytest.mark.parametrize("level", [-1, 256, 10**30, True, False, 1.0, "5", None, float("nan")])
def test_anything_else_is_refused_with_a_hint(level: object) -> None:
    with pytest.raises(PriorityInvalid) as refused:
        checked_priority(level)
    assert repr(level) in refused.value.what
    assert "NORMAL" in refused.value.hint
    assert not refused.value.retryable
