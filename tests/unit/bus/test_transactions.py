"""Transactions: one batch or nothing, savepoints, and whose they are."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, HandClock, HandTimers, run_together
from tests.unit.bus.rigs import Rig, breaking_store, fails
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.errors import BusError, LockLost, QuotaExceeded, StoreFailed, TransactionInvalid, UsageError


class Oops(Exception):
    """What a test raises to roll back."""


def inside(rig: Rig, script: Callable[["Steps"], Awaitable[None]]) -> Any:
    """Run a script that holds for both faces: in one task on the rig's loop, or right here."""
    if isinstance(rig.bus, MessageBus):
        return rig.do(lambda: script(Steps(rig.bus)))
    step = script(Steps(rig.bus)).__await__()
    with pytest.raises(StopIteration):
        next(step)
    return None


class Steps:
    """The verbs of either face, awaitable; and its transaction as an async block."""

    def __init__(self, bus: Any) -> None:
        self.bus = bus
        self._is_sync = isinstance(bus, SyncMessageBus)

    def transaction(self) -> Any:
        transaction = self.bus.transaction()
        return Blocking(transaction) if self._is_sync else transaction

    async def do(self, action: Callable[[], Any]) -> Any:
        answer = action()
        return answer if self._is_sync else await answer

    async def send(self, *given: Any, **named: Any) -> Any:
        return await self.do(lambda: self.bus.send(*given, **named))

    async def one(self, entity: str) -> Any:
        (message,) = await self.do(lambda: self.bus.receive_batch(entity, 1, timeout=GUARD_S))
        return message


class Blocking:
    """A sync transaction in a script that is written async."""

    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction

    async def __aenter__(self) -> Any:
        return self._transaction.__enter__()

    async def __aexit__(self, *error: Any) -> None:
        self._transaction.__exit__(*error)


# All or nothing


def test_everything_inside_is_one_batch(rig: Rig) -> None:
    rig.send_many("orders", [1, 2, 3, 4])

    async def script(steps: Steps) -> None:
        messages = [await steps.one("orders") for _ in range(4)]
        async with steps.transaction() as transaction:
            result = await steps.send("invoices", "new")
            many = await steps.do(lambda: steps.bus.send_many("log", ["a", "b"]))
            await steps.do(messages[0].complete)
            await steps.do(messages[1].abandon)
            await steps.do(messages[2].defer)
            await steps.do(lambda: messages[3].dead_letter("Why"))
            assert [info.name for info in await steps.do(steps.bus.entities)] == ["orders"]
            assert (result.sequence, many[1].sequence) == (0, 0)
            assert len(transaction) == 7
            assert transaction.state == "open"
        assert (result.sequence, [each.sequence for each in many]) == (1, [1, 2])
        assert result.durability != ""
        assert transaction.state == "committed"

    inside(rig, script)
    assert rig.counts("orders") == (1, 0, 0, 1, 1)
    assert rig.counts("invoices")[0] == 1
    if rig.durable:
        rig.reopen()
        assert rig.counts("orders") == (1, 0, 0, 1, 1)
        assert [message.body for message in rig.take("log", 9)] == ["a", "b"]


def test_an_error_takes_everything_back(rig: Rig) -> None:
    rig.send("orders", 1)

    async def script(steps: Steps) -> None:
        message = await steps.one("orders")
        with fails(Oops):
            async with steps.transaction() as transaction:
                await steps.send("invoices", "new")
                await steps.do(message.complete)
                raise Oops
        assert transaction.state == "rolled back"
        await steps.do(message.complete)  # The lock is still held: it may be settled otherwise.

    inside(rig, script)
    assert [info.name for info in rig.entities()] == ["orders"]
    assert rig.counts("orders") == (0, 0, 0, 0, 0)


def test_a_refused_batch_leaves_nothing(rig: Rig) -> None:
    rig.create_queue("small", max_count=1)

    async def script(steps: Steps) -> None:
        with fails(QuotaExceeded):
            async with steps.transaction() as transaction:
                await steps.send("other", 1)
                await steps.send("small", 1)
                await steps.send("small", 2)
        assert transaction.state == "failed"

    inside(rig, script)
    assert [info.name for info in rig.entities()] == ["small"]
    assert rig.counts("small")[0] == 0


def test_a_lock_lost_until_the_commit_leaves_nothing(timed_rig: Rig, hand_clock: HandClock) -> None:
    timed_rig.send("orders", 1)

    async def script(steps: Steps) -> None:
        message = await steps.one("orders")
        with fails(LockLost):
            async with steps.transaction():
                await steps.send("invoices", "new")
                await steps.do(message.complete)
                hand_clock.advance(61)
        assert not message.settled

    inside(timed_rig, script)
    assert [info.name for info in timed_rig.entities()] == ["orders"]
    assert timed_rig.one("orders", 0).delivery_count == 2


def test_settled_in_a_transaction_a_lock_is_kept_until_the_commit(
    timed_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    timed_rig.send("orders", 1)

    async def script(steps: Steps) -> None:
        message = await steps.one("orders")
        async with steps.transaction():
            await steps.do(message.complete)
            for _ in range(10):
                hand_clock.advance(20)
                hand_timers.fire()
        _, seen = steps.bus.events_after(0)
        for _ in range(10):
            hand_clock.advance(20)
            hand_timers.fire()
        assert steps.bus.events_after(seen)[0] == []  # And no longer.

    inside(timed_rig, script)
    assert timed_rig.counts("orders") == (0, 0, 0, 0, 0)


def test_a_message_in_its_block_survives_the_rollback_of_its_settling(rig: Rig) -> None:
    rig.send("orders", 1)

    async def on_a_loop(steps: Steps) -> None:
        async with await steps.one("orders") as message, steps.transaction():
            await message.complete()
            raise Oops

    def in_a_thread() -> None:
        with rig.one("orders") as message, rig.bus.transaction():
            message.complete()
            raise Oops

    with pytest.raises(Oops):
        inside(rig, on_a_loop) if isinstance(rig.bus, MessageBus) else in_a_thread()
    assert rig.one("orders", 0).delivery_count == 2  # It was abandoned when its own block was left.


def test_an_empty_transaction_is_no_write(rig: Rig) -> None:
    async def script(steps: Steps) -> None:
        async with steps.transaction() as transaction:
            pass
        assert transaction.state == "committed"

    inside(rig, script)
    assert rig.bus.events_after(0)[0] == []


def test_one_is_used_once(rig: Rig) -> None:
    async def script(steps: Steps) -> None:
        transaction = steps.transaction()
        async with transaction:
            with pytest.raises(TransactionInvalid):
                await transaction.__aenter__()
        with pytest.raises(TransactionInvalid):
            await transaction.__aenter__()

    inside(rig, script)
    rig.send("q", 1)
    assert rig.counts("q")[0] == 1  # The failed ones left nothing open.


def test_settling_twice_in_one_is_refused(rig: Rig) -> None:
    rig.send("q", 1)

    async def script(steps: Steps) -> None:
        message = await steps.one("q")
        with fails(BusError):
            async with steps.transaction():
                await steps.do(message.complete)
                await steps.do(message.abandon)

    inside(rig, script)
    assert rig.counts("q") == (0, 1, 0, 0, 0)


def test_scheduling_and_cancelling_inside(rig: Rig) -> None:
    sequence = rig.schedule("q", "old", 100)

    async def script(steps: Steps) -> None:
        async with steps.transaction():
            with pytest.raises(UsageError):
                steps.bus.schedule("q", 1, 100)
            await steps.send("q", "new", delay=100)
            await steps.do(lambda: steps.bus.cancel_scheduled("q", sequence))

    inside(rig, script)
    assert [message.body for message in rig.peek("q", 9)] == ["new"]


# Savepoints


ENTITY_CALLS: list[Callable[[Any], object]] = [
    lambda bus: bus.create_queue("new"),
    lambda bus: bus.create_topic("new"),
    lambda bus: bus.create_subscription("t", "new"),
    lambda bus: bus.update_entity("q", max_count=5),
    lambda bus: bus.delete_entity("q"),
    lambda bus: bus.entities.create_queue("new"),
    lambda bus: bus.entities.create_topic("new"),
    lambda bus: bus.entities.create_subscription("t", "new"),
    lambda bus: bus.entities.update("q", max_count=5),
    lambda bus: bus.entities.delete("q"),
    lambda bus: bus.entities.create_rule("t", "s", "new", "1 = 1"),
    lambda bus: bus.entities.update_rule("t", "s", "$Default", "1 = 1"),
    lambda bus: bus.entities.delete_rule("t", "s", "$Default"),
]


def test_entities_are_no_part_of_a_transaction(rig: Rig) -> None:
    rig.create_queue("q")
    rig.create_topic("t")
    rig.create_subscription("t", "s")
    before = rig.entities()

    async def script(steps: Steps) -> None:
        async with steps.transaction():
            await steps.send("q", "kept")
            for call in ENTITY_CALLS:
                with pytest.raises(TransactionInvalid) as caught:
                    call(steps.bus)
                assert "before the transaction" in caught.value.hint
            await steps.do(lambda: steps.bus.receive_batch("missing", 1, timeout=0))  # It makes the queue itself.

    inside(rig, script)
    after = {info.name: info for info in rig.entities()}
    assert (after.pop("missing").active, after.pop("q").active) == (0, 1)
    assert after == {info.name: info for info in before if info.name != "q"}
    rig.create_queue("new")


def test_a_savepoint_that_is_left_well_goes_with_the_outer_one(rig: Rig) -> None:
    async def script(steps: Steps) -> None:
        async with steps.transaction():
            await steps.send("q", "outer")
            async with steps.transaction() as savepoint:
                inner = await steps.send("q", "inner")
            assert inner.sequence == 0
            assert savepoint.state.startswith("released")
        assert inner.sequence == 2

    inside(rig, script)
    assert [message.body for message in rig.take("q", 9)] == ["outer", "inner"]


def test_a_savepoint_takes_back_its_own_and_nothing_else(rig: Rig) -> None:
    rig.send_many("orders", [1, 2])

    async def script(steps: Steps) -> None:
        first, second = await steps.one("orders"), await steps.one("orders")
        async with steps.transaction():
            await steps.send("q", "a")
            await steps.do(first.complete)
            with fails(Oops):
                async with steps.transaction():
                    await steps.send("q", "b")
                    await steps.do(second.complete)
                    async with steps.transaction():
                        await steps.send("q", "c")
                    raise Oops
            assert (first.settled, second.settled) == (True, False)
            await steps.send("q", "d")

    inside(rig, script)
    assert [message.body for message in rig.take("q", 9)] == ["a", "d"]
    assert rig.counts("orders") == (0, 1, 0, 0, 0)


def test_the_outer_one_takes_back_its_savepoints(rig: Rig) -> None:
    async def script(steps: Steps) -> None:
        with fails(Oops):
            async with steps.transaction():
                async with steps.transaction():
                    await steps.send("q", "b")
                raise Oops

    inside(rig, script)
    assert rig.entities() == []


# Whose it is


async def test_a_task_started_inside_does_not_join(queue_bus: MessageBus) -> None:
    with fails(Oops):
        async with queue_bus.transaction():
            task = asyncio.create_task(_send(queue_bus, "task"))
            await task
            await asyncio.to_thread(queue_bus.publish_from_sync, "c")
            await queue_bus.send("q", "mine")
            raise Oops
    assert [message.body for message in await queue_bus.receive_batch("q", 9, timeout=0)] == ["task"]


async def _send(bus: MessageBus, body: object) -> None:
    async with bus.transaction():
        await bus.send("q", body)


async def test_tasks_at_once_have_one_each(queue_bus: MessageBus) -> None:
    together = asyncio.Barrier(10)

    async def work(number: int) -> None:
        async with queue_bus.transaction():
            await queue_bus.send("q", number)
            await together.wait()
            await queue_bus.send("q", number)
            if number % 2:
                raise Oops

    results = await asyncio.gather(*(work(number) for number in range(10)), return_exceptions=True)
    assert [isinstance(result, Oops) for result in results] == [False, True] * 5
    bodies = [message.body for message in await queue_bus.receive_batch("q", 99, timeout=0)]
    assert sorted(bodies) == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]
    assert all(first == second for first, second in zip(bodies[::2], bodies[1::2], strict=True))


def test_threads_at_once_have_one_each(store_path: Path | None) -> None:
    rig = Rig(SyncMessageBus, store_path)
    together = threading.Barrier(6)

    def work(number: int) -> None:
        try:
            with rig.bus.transaction():
                rig.send("q", number)
                together.wait(GUARD_S)
                rig.send("q", number)
                if number % 2:
                    raise Oops
        except Oops:
            pass

    run_together(6, work)
    assert sorted(message.body for message in rig.take("q", 99)) == [0, 0, 2, 2, 4, 4]
    rig.end()


async def test_two_buses_have_one_each() -> None:
    async with MessageBus() as one, MessageBus() as other:
        with fails(Oops):
            async with one.transaction(), other.transaction():
                await one.send("q", 1)
                await other.send("q", 1)
                async with one.transaction():
                    await one.send("q", 2)
                raise Oops
        async with one.transaction(), other.transaction():
            await one.send("q", 3)
        assert [message.body for message in await one.receive_batch("q", 9, timeout=0)] == [3]
        assert await other.receive_batch("q", 9, timeout=0) == []


async def test_a_transaction_that_is_cancelled_is_rolled_back(queue_bus: MessageBus) -> None:
    async def work() -> None:
        async with queue_bus.transaction():
            await queue_bus.send("q", 1)
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await queue_bus.entities() == []


@pytest.mark.immediate
async def test_cancelled_while_committing_it_is_whole_or_not_at_all(queue_bus: MessageBus) -> None:
    for steps in range(8):

        async def work() -> None:
            async with queue_bus.transaction():
                await queue_bus.send("a", 1)
                await queue_bus.send("b", 1)

        task = asyncio.create_task(work())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        taken = [len(await queue_bus.receive_batch(name, 9, timeout=0)) for name in ("a", "b")]
        assert taken[0] == taken[1]


@pytest.mark.immediate
async def test_cancelled_while_committing_what_depends_on_it_follows(tmp_path: Path) -> None:
    stored = 0
    async with MessageBus(f"sqlite:///{tmp_path}/bus.db") as bus:
        heard = Collector()
        bus.subscribe("told", heard)
        await bus.create_queue("q")
        for steps in range(12):
            opened = bus.transaction()

            async def work(opened: Any = opened) -> None:
                async with opened:
                    await bus.send("q", 1)
                    await bus.publish("told", "stored")

            task = asyncio.create_task(work())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            taken = len(await bus.receive_batch("q", 9, timeout=0))
            stored += taken
            # Others may receive the message before the thread that wrote it has notified the waiting caller.
            for _ in range(10_000):
                if opened.state != "committing":
                    break
                await asyncio.sleep(0.001)
            assert (opened.state == "committed") == (taken == 1)
            assert await asyncio.to_thread(heard.wait, stored) == ["stored"] * stored
    assert 0 < stored < 12


# Publishing inside


def test_ephemeral_publishes_go_out_after_the_commit(rig: Rig) -> None:
    got = Collector()
    rig.subscribe("live", got)

    async def script(steps: Steps) -> None:
        async with steps.transaction():
            await steps.do(lambda: steps.bus.publish("live", 1))
            await steps.do(lambda: steps.bus.publish_many("live", [2, 3]))
            steps.bus.publish_from_sync("live", 4)
            await steps.send("q", "x")
            assert steps.bus.metrics("live")["published"] == 0
        with fails(Oops):
            async with steps.transaction():
                await steps.do(lambda: steps.bus.publish("live", "never"))
                await steps.do(lambda: steps.bus.publish_many("live", ["never"]))
                raise Oops

    inside(rig, script)
    assert got.wait(4) == [1, 2, 3, 4]
    rig.publish("live", 5)
    assert got.wait(5) == [1, 2, 3, 4, 5]


def test_persistent_publishes_are_part_of_it(rig: Rig) -> None:
    rig.create_channel("c", persistent=True)
    got, live = Collector(), Collector()
    rig.subscribe("c", got, group="g")
    rig.subscribe("*", live, match="wildcard")

    async def script(steps: Steps) -> None:
        with fails(Oops):
            async with steps.transaction():
                await steps.do(lambda: steps.bus.publish("c", "never"))
                await steps.do(lambda: steps.bus.publish_many("c", ["never"]))
                raise Oops
        async with steps.transaction():
            message = await steps.do(lambda: steps.bus.publish("c", 1))
            many = await steps.do(lambda: steps.bus.publish_many("c", [2, 3]))
            await steps.send("q", "x")
        assert [message.sequence, *(each.sequence for each in many)] == [1, 2, 3]

    inside(rig, script)
    assert rig.drain(GUARD_S)
    assert got.wait(3) == [1, 2, 3]
    assert live.wait(3) == [1, 2, 3]


async def test_a_store_that_fails_at_the_commit_is_told(tmp_path: Path) -> None:
    store, journal = breaking_store(tmp_path / "bus.db")
    bus = MessageBus(store)
    got = Collector()
    bus.create_channel("live", persistent=False)
    bus.subscribe("live", got)
    with fails(StoreFailed):
        async with bus.transaction() as transaction:
            await bus.send("q", 1)
            await bus.publish("live", 1)
            journal.broken = True
    assert transaction.state == "failed"
    assert got.bodies == []
    await bus.close(0.2)


async def test_a_request_inside_of_a_transaction_is_refused_at_once() -> None:
    async with MessageBus() as bus:
        bus.subscribe("ask", lambda message: 1)
        with pytest.raises(UsageError, match="inside a transaction"):
            await _ask_inside(bus)
        assert await bus.request("ask", timeout=GUARD_S) == 1


async def _ask_inside(bus: MessageBus) -> None:
    async with bus.transaction():
        await bus.request("ask", timeout=GUARD_S)


async def test_a_bus_that_has_a_store_takes_no_other(tmp_path: Path) -> None:
    bus = MessageBus()
    await bus.send("q", 1)
    with pytest.raises(UsageError, match="has a store already"):
        bus.with_persistence(tmp_path / "bus.db")
    assert [message.body for message in await bus.peek("q")] == [1]
    await bus.close()
