"""The work is the same for every contender: counted, bounded in time, and nothing of it may be lost."""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest

from benchmarks.durable_load import (
    BATCH,
    BODY,
    PYTHON_SWITCH_SECONDS,
    TASKS,
    Phase,
    busy_thread,
    from_many_tasks,
    in_batches,
    measured,
)
from benchmarks.measure import Undelivered

LONG = 3_600.0


class Plain:
    """A contender in memory; `loses` messages on the way."""

    def __init__(self, loses: int = 0) -> None:
        self.queue: deque[bytes] = deque()
        self.loses = loses

    async def send_each(self, phase: Phase) -> None:
        self.queue.extend(phase.bodies())

    async def send_batches(self, phase: Phase) -> None:
        for batch in phase.batches():
            self.queue.extend(batch)
        for _ in range(self.loses):
            self.queue.pop()

    async def receive(self, phase: Phase) -> None:
        while phase.goes_on():
            found = [self.queue.popleft() for _ in range(min(BATCH, len(self.queue)))]
            phase.received(len(found))

    async def waiting(self) -> int:
        return len(self.queue)


async def test_all_phases_give_a_rate(tmp_path: Path) -> None:
    @asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[Plain]:
        assert folder == tmp_path
        yield Plain()

    rates = await measured(opened, tmp_path, 250, nullcontext())
    assert min(rates.send_each, rates.send_batches, rates.receive) > 0


async def test_a_lost_message_fails_the_trial(tmp_path: Path) -> None:
    @asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[Plain]:
        yield Plain(loses=1)

    with pytest.raises(Undelivered):
        await measured(opened, tmp_path, 250, nullcontext())


async def test_what_a_contender_sets_for_the_process_ends_with_it(tmp_path: Path) -> None:
    before = sys.getswitchinterval()
    found: list[float] = []

    @asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[Plain]:
        found.append(sys.getswitchinterval())
        sys.setswitchinterval(0.001)
        yield Plain()

    for _ in range(2):
        await measured(opened, tmp_path, 1, nullcontext())
    assert found == [pytest.approx(PYTHON_SWITCH_SECONDS)] * 2
    assert sys.getswitchinterval() == before


def test_a_phase_gives_out_as_many_messages_as_it_was_made_for() -> None:
    assert list(Phase(3, LONG).bodies()) == [BODY] * 3
    phase = Phase(2 * BATCH + 1, LONG)
    assert [len(batch) for batch in phase.batches()] == [BATCH, BATCH, 1]
    assert phase.done == 2 * BATCH + 1


def test_a_phase_whose_time_is_over_has_done_one_thing() -> None:
    assert len(list(Phase(1_000, 0.0).bodies())) == 1
    assert len(list(Phase(1_000, 0.0).batches())) == 1


def test_a_receive_phase_counts_what_came() -> None:
    phase = Phase(150, LONG)
    phase.received(100)
    assert phase.goes_on()
    phase.received(50)
    assert not phase.goes_on()


def test_nothing_to_receive_ends_a_phase_that_would_never_end() -> None:
    phase = Phase(150, LONG)
    phase.received(100)
    with pytest.raises(Undelivered, match="after 100 none came"):
        phase.received(0)


async def test_tasks_share_the_messages_and_each_waits_for_its_own() -> None:
    phase = Phase(3 * TASKS, LONG)
    now = most = 0

    async def send(body: bytes) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    await from_many_tasks(send, phase)
    assert phase.done == 3 * TASKS
    assert most == TASKS


def test_the_busy_thread_ends_with_its_block() -> None:
    with busy_thread():
        assert [thread.name for thread in threading.enumerate()].count("busy") == 1
    assert "busy" not in [thread.name for thread in threading.enumerate()]


def test_bodies_in_batches_are_exactly_as_many() -> None:
    assert [len(batch) for batch in in_batches(2_500, 1_000)] == [1_000, 1_000, 500]
    assert list(in_batches(0, 1_000)) == []
