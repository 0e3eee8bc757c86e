"""What a store takes on a disk that is full, or nearly: what grows is refused before it is decided."""

import logging

import pytest

from unibus.core.filters.filters import TrueFilter
from unibus.core.lifecycle.commands import (
    COMPLETE,
    RENEW_SESSION,
    Advance,
    Cancel,
    Command,
    Declare,
    Drop,
    DropRule,
    Forget,
    Move,
    Remove,
    Renew,
    Send,
    SessionCommand,
    SetRule,
    Settle,
)
from unibus.core.lifecycle.state.changes import Activated, MessageRef
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.core.lifecycle.state.rules import Rule
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import StoreFull
from unibus.stores.engine.space import Space
from unibus.stores.files.reserve import Reserve
from unibus.stores.memory import MemoryJournal
from unibus.testing.clock.virtual_clock import VirtualClock

WANTED = 400_000
T = b"token"


class FakeReserve(Reserve):
    def __init__(self) -> None:
        super().__init__("", WANTED)
        self.free, self.asked, self.tried = 10**9, 0, 0
        self.has_space = False

    def free_bytes(self) -> int:
        self.asked += 1
        return self.free

    def refill(self) -> bool:
        self.tried += 1
        self.full = not self.has_space
        return self.has_space


class Rig:
    def __init__(self) -> None:
        journal = MemoryJournal()
        self.reserve = FakeReserve()
        journal.reserve = self.reserve
        self.state = StoreState(10**9)
        self.clock = VirtualClock()
        self.space = Space(journal, self.state, self.clock.timers(lambda: True))

    def decided(self, count: int) -> None:
        """As if so many changes were decided, and not written yet."""
        self.state.fresh += [Activated(0, 1, number, MessageRef(f"m{number}", 0), number) for number in range(count)]
        self.state.seq += count

    def written(self) -> None:
        self.state.take()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def send(size: int) -> Send:
    return Send("q", MessageRef("m", size), bytes(size), 50)


def test_small_groups_cost_no_look_at_the_file_system(rig: Rig) -> None:
    for _ in range(50):
        rig.space.admit([send(1_000)])
        rig.decided(1)
        rig.written()
    assert rig.reserve.asked == 0


def test_what_collects_in_one_group_is_counted(rig: Rig) -> None:
    rig.reserve.free = 300_000
    for _ in range(9):
        rig.space.admit([send(10_000)])
        rig.decided(1)
    assert rig.reserve.asked == 0
    rig.space.admit([send(10_000)])
    rig.decided(1)
    assert rig.reserve.asked == 1
    with pytest.raises(StoreFull, match="bytes are free; nothing was stored"):
        rig.space.admit([send(60_000)])  # Twice as much is needed, because another group may be on its way.
    rig.written()
    rig.space.admit([send(60_000)])


def test_copies_count_although_they_have_no_data(rig: Rig) -> None:
    rig.reserve.free = 1_000
    rig.space.admit([send(10)])
    rig.decided(1_000)
    with pytest.raises(StoreFull):
        rig.space.admit([send(10)])


def test_a_large_batch_is_taken_where_there_is_space(rig: Rig) -> None:
    rig.space.admit([send(1_000_000), send(1_000_000)])
    rig.decided(2)
    assert rig.reserve.asked == 1
    rig.space.admit([send(1_000_000)])
    assert rig.reserve.asked == 1, "what was found is good for the rest of the group"


GROWS: list[Command] = [send(1), Declare("q", QUEUE, {}), SetRule("s", Rule("r", TrueFilter())), Move("q", 1, "r")]
GOES_ON: list[Command] = [
    Settle(COMPLETE, "q", 1, T),
    Renew("q", 1, T),
    Cancel("q", 1),
    SessionCommand(RENEW_SESSION, "q", "s", T),
    Remove("q", 1, "why"),
    Drop("q"),
    DropRule("s", "r"),
    Advance("n", 0, 1),
    Forget("q", 1),
]


@pytest.mark.parametrize("command", GROWS, ids=lambda command: type(command).__name__)
def test_a_full_store_refuses_what_grows(rig: Rig, command: Command) -> None:
    rig.reserve.enter()
    with pytest.raises(StoreFull) as caught:
        rig.space.admit([command])
    assert caught.value.retryable
    with pytest.raises(StoreFull):
        rig.space.admit([GOES_ON[0], command])


def test_a_full_store_goes_on_with_the_rest(rig: Rig) -> None:
    rig.reserve.enter()
    rig.space.admit(GOES_ON)
    assert "full" in rig.space.warning()


def test_it_tries_once_per_second_until_there_is_space(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "unibus")
    rig.reserve.enter()
    for _ in range(5):
        rig.space.entered()  # After each group.
    rig.clock.advance(3.0)
    assert rig.reserve.tried == 3
    rig.reserve.has_space = True
    rig.clock.advance(1.0)
    rig.space.admit([send(1)])
    assert rig.space.warning() == ""
    rig.clock.advance(10.0)
    assert rig.reserve.tried == 4
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_closed_store_tries_no_more(rig: Rig) -> None:
    rig.reserve.enter()
    rig.space.entered()
    rig.space.close()
    rig.clock.advance(5.0)
    assert rig.reserve.tried == 0
