"""Every public call of the async interface, cancelled at every one of its suspensions: never half, never stuck.

What a cancelled call promises is in scenarios.py. After each of them the bus has what it had before the call or what it
has after it, drains, closes, and has the same when it is opened again.
"""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cancellation.api import suspending_calls
from tests.cancellation.scenarios import DONE, EITHER, FOLDER, SCENARIOS, UNDONE, Scenario
from tests.cancellation.state import bodies, held, state_of, store_of
from tests.cancellation.steps import TURNS, Run, cancelled_at
from tests.unit.bus.probes import GUARD_S, assert_all_end, assert_slots_are_free_here, bus_threads
from unibus.bus.api.message_bus import MessageBus
from unibus.core.lifecycle.state.states import LOCKED
from unibus.stores.seam.store_view import OpenStoreView, all_messages
from unibus.testing.clock.virtual_clock import VirtualClock

SUSPENSIONS_MAX = 40
CASES = [(scenario, kind) for scenario in SCENARIOS for kind in scenario.kinds if not scenario.closes]
CLOSING = [(scenario, kind) for scenario in SCENARIOS for kind in scenario.kinds if scenario.closes]


def cases(chosen: list[tuple[Scenario, str]]) -> pytest.MarkDecorator:
    names = [f"{scenario.name}-{kind}" for scenario, kind in chosen]
    return pytest.mark.parametrize(("scenario", "kind"), chosen, ids=names)


def test_every_public_call_has_a_scenario() -> None:
    covered = {name for scenario in SCENARIOS for name in scenario.covers}
    assert suspending_calls() - covered == set(), "calls that no scenario cancels: add one to scenarios.py"
    assert covered - suspending_calls() == set(), "scenarios of calls that there are no more"


def one_thread() -> None:
    """So that waiting for a thread is waiting for all that was given to threads before."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))


class Trial:
    """One bus, one call that may be cancelled, and what it left."""

    def __init__(self, scenario: Scenario, kind: str, folder: Path) -> None:
        folder.mkdir()
        FOLDER.set(folder)
        self.scenario = scenario
        self.clock = VirtualClock()
        self.url = "memory://" if kind == "memory" else f"sqlite:///{folder}/bus.db?durability=D1"
        self.is_durable = kind == "sqlite"
        self.bus = self.opened()

    def opened(self) -> MessageBus:
        bus = MessageBus(clock=self.clock)
        bus.with_persistence(self.url)
        return bus

    async def run(self, at: int, late: bool) -> Run:
        """The call, cancelled there. 0: not at all."""
        given = await self.scenario.prepare(self.bus)
        run = await cancelled_at(
            at, late, lambda: self.scenario.call(self.bus, given), lambda: self.scenario.meanwhile(self.bus), GUARD_S
        )
        await self.rest()
        return run

    async def without(self) -> None:
        """Everything but the call."""
        given = await self.scenario.prepare(self.bus)
        if self.scenario.undo is not None:
            await self.scenario.undo(self.bus, given)
        await self.scenario.meanwhile(self.bus)
        await self.rest()

    async def rest(self) -> None:
        """A thread that the call was waiting for goes on without it."""
        await asyncio.get_running_loop().run_in_executor(None, int)
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def drained(self) -> Any:
        """What the bus holds when its handlers have nothing left to do."""
        self.bus.start()
        assert await self.bus.drain(GUARD_S), "drain() does not become true"
        await assert_slots_are_free_here(self.bus)
        return state_of(self.bus)

    async def end(self, opens_again: bool) -> None:
        """Close it, and open it again: it has the same, and no lock is for ever."""
        state = state_of(self.bus)
        await asyncio.wait_for(self.bus.close(GUARD_S), GUARD_S)
        if self.is_durable and opens_again:
            self.bus = self.opened()
            assert state_of(self.bus)[:2] == state[:2], "opened again, the bus has something else"
            await self.clock.advance_async(1_000)
            assert [entry for entry in all_messages(OpenStoreView(store_of(self.bus))) if entry.state == LOCKED] == []
            await self.bus.close(GUARD_S)


async def expected(scenario: Scenario, kind: str, folder: Path) -> tuple[Any, Any, int]:
    """The states without the call and after it, and how often it is suspended."""
    before = None
    if scenario.promise != DONE:
        trial = Trial(scenario, kind, folder / "before")
        await trial.without()
        before = await trial.drained()
        await trial.bus.close(GUARD_S)
    trial = Trial(scenario, kind, folder / "after")
    run = await trial.run(0, False)
    assert run.returned, run.raised
    after = await trial.drained()
    await trial.bus.close(GUARD_S)
    return before, after, run.suspensions


def check(promise: str, run: Run, found: Any, before: Any, after: Any) -> None:
    """Whether the call has kept its promise."""
    assert run.raised is None, run.raised
    if not run.cancelled or promise == DONE:
        assert found == after
    elif promise == UNDONE:
        assert found == before
    elif promise == EITHER:
        assert found in (before, after)
    else:
        here, possible = bodies(found[0]), {*bodies(before[0]), *bodies(after[0])}
        assert len(set(here)) == len(here), "a message is there twice"
        assert set(here) <= possible
        assert len(after[0]) <= len(here) <= len(before[0]), "a message is lost"


@cases(CASES)
async def test_a_cancelled_call_is_done_or_not_done(scenario: Scenario, kind: str, folder: Path) -> None:
    one_thread()
    before, after, suspensions = await expected(scenario, kind, folder)
    assert suspensions < SUSPENSIONS_MAX
    for late, at in itertools.product((False, True), range(1, suspensions + 1)):
        trial = Trial(scenario, kind, folder / f"{at}-{late}")
        run = await trial.run(at, late)
        promise = (late and scenario.late_promise) or scenario.promise
        check(promise, run, await trial.drained(), before, after)
        await trial.end(run.cancelled and not scenario.reads)


@cases(CLOSING)
async def test_a_cancelled_close_ends_with_the_next_one(scenario: Scenario, kind: str, folder: Path) -> None:
    one_thread()
    threads = bus_threads()
    for late in (False, True):
        for at in range(1, SUSPENSIONS_MAX):
            trial = Trial(scenario, kind, folder / f"{at}-{late}")
            run = await trial.run(at, late)
            assert run.raised is None, run.raised
            await asyncio.wait_for(trial.bus.close(GUARD_S), GUARD_S)
            trial.bus = trial.opened()  # No thread and no lock of the first one is left in its way.
            assert [entry for entry in held(trial.bus) if entry[2] == "locked"] == []
            await trial.bus.close(GUARD_S)
            await asyncio.to_thread(assert_all_end, bus_threads() - threads)
            if run.suspensions < at:
                break
