"""Small programs of several threads on one bus, and what must be true after each of them, however they were scheduled.

Nothing is stuck: every thread ends, the bus drains and closes. Nothing is lost or doubled: what a publish or
a send has accepted is handled once, or is where it can be received from.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.cancellation.schedules import Schedule
from tests.unit.bus.probes import GUARD_S, assert_slots_are_free
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message
from unibus.errors import BusClosed

Race = Callable[[Schedule, Path], None]

GROUP: Final = "c/Subscriptions/g"


class Handled:
    """Handlers of both kinds that count what they get."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.bodies: Counter[object] = Counter()

    def sync(self, message: Message) -> None:
        with self._lock:
            self.bodies[message.body] += 1

    async def slow(self, message: Message) -> None:
        await asyncio.sleep(0)  # Here it may be cancelled, and then it has not handled the message.
        self.sync(message)

    def assert_each_once(self, expected: int) -> None:
        assert self.bodies == Counter(range(expected))


def end(bus: Any, handled: Handled, expected: int) -> None:
    assert bus.drain(GUARD_S), "drain() does not become true"
    handled.assert_each_once(expected)
    assert_slots_are_free(bus)
    bus.close(GUARD_S)


def publishing(bus: SyncMessageBus, *bodies: int) -> Callable[[], None]:
    def publish() -> None:
        for body in bodies:
            bus.publish("c", body)

    return publish


def in_memory() -> SyncMessageBus:
    bus = SyncMessageBus()
    bus.create_channel("c")
    return bus


def durable(folder: Path) -> SyncMessageBus:
    bus = SyncMessageBus().with_persistence(f"sqlite:///{folder}/bus.db?durability=D1")
    bus.create_channel("c", persistent=True)
    return bus  # type: ignore[return-value]


def _member_leaves(schedule: Schedule, bus: SyncMessageBus, is_async: tuple[bool, bool]) -> None:
    handled = Handled()
    stays, leaves = [handled.slow if chosen else handled.sync for chosen in is_async]
    bus.subscribe("c", stays, group="g")
    leaving = bus.subscribe("c", leaves, group="g")
    schedule.run(publisher=publishing(bus, 0, 1, 2), canceller=leaving.cancel)
    end(bus, handled, 3)


def sync_member_leaves(schedule: Schedule, folder: Path) -> None:
    _member_leaves(schedule, in_memory(), (False, False))


def async_member_leaves(schedule: Schedule, folder: Path) -> None:
    _member_leaves(schedule, in_memory(), (True, True))


def async_member_leaves_to_a_sync_one(schedule: Schedule, folder: Path) -> None:
    _member_leaves(schedule, in_memory(), (False, True))


def durable_member_leaves(schedule: Schedule, folder: Path) -> None:
    _member_leaves(schedule, durable(folder), (False, False))


def durable_async_member_leaves(schedule: Schedule, folder: Path) -> None:
    _member_leaves(schedule, durable(folder), (True, True))


def _last_member_is_followed(schedule: Schedule, bus: SyncMessageBus) -> None:
    """The last member leaves while another one comes: one of them has the messages, or they wait for the next."""
    handled = Handled()
    leaving = bus.subscribe("c", handled.slow, group="g")
    schedule.run(
        publisher=publishing(bus, 0, 1),
        canceller=leaving.cancel,
        subscriber=lambda: bus.subscribe("c", handled.sync, group="g"),
    )
    end(bus, handled, 2)


def last_member_is_followed(schedule: Schedule, folder: Path) -> None:
    _last_member_is_followed(schedule, in_memory())


def durable_last_member_is_followed(schedule: Schedule, folder: Path) -> None:
    _last_member_is_followed(schedule, durable(folder))


def messages_wait_for_a_member(schedule: Schedule, folder: Path) -> None:
    """No member is left: the messages wait for the next one."""
    bus, handled = in_memory(), Handled()
    leaving = bus.subscribe("c", handled.sync, group="g")
    schedule.run(publisher=publishing(bus, 0, 1, 2), canceller=leaving.cancel)
    assert bus.drain(GUARD_S)
    bus.subscribe("c", handled.slow, group="g")
    end(bus, handled, 3)


def durable_messages_wait_for_a_member(schedule: Schedule, folder: Path) -> None:
    bus, handled = durable(folder), Handled()
    leaving = bus.subscribe("c", handled.slow, group="g")
    schedule.run(publisher=publishing(bus, 0, 1, 2), canceller=leaving.cancel)
    assert bus.drain(GUARD_S)
    (info,) = [info for info in bus.entities() if info.name == GROUP]
    assert info.locked == 0
    assert info.active + sum(handled.bodies.values()) == 3
    bus.subscribe("c", handled.sync, group="g")
    end(bus, handled, 3)


def an_inline_member_leaves(schedule: Schedule, folder: Path) -> None:
    bus, handled = in_memory(), Handled()
    leaving = bus.subscribe("c", handled.sync, group="g", dispatch="inline")
    schedule.run(publisher=publishing(bus, 0, 1, 2), canceller=leaving.cancel)
    bus.subscribe("c", handled.sync, group="h")
    end(bus, handled, 3)


def _loop_ends(schedule: Schedule, bus: Any) -> None:
    """A member is on a loop that ends in the middle of it all: what it had is for the other member."""
    handled = Handled()
    bus.subscribe("c", handled.sync, group="g")

    async def live() -> None:
        bus.subscribe("c", handled.slow, group="g", concurrency=2)
        for _ in range(6):
            await asyncio.sleep(0)

    def publish() -> None:
        for body in range(4):
            bus.publish_from_sync("c", body)

    schedule.run(publisher=publish, looper=lambda: asyncio.run(live()))
    assert asyncio.run(drained(bus)), "drain() does not become true"
    handled.assert_each_once(4)
    assert_slots_are_free(bus)
    asyncio.run(closed(bus))


async def drained(bus: MessageBus) -> bool:
    return await bus.drain(GUARD_S)


async def closed(bus: MessageBus) -> None:
    await bus.close(GUARD_S)


def loop_ends(schedule: Schedule, folder: Path) -> None:
    bus = MessageBus()
    bus.create_channel("c")
    _loop_ends(schedule, bus)


def durable_loop_ends(schedule: Schedule, folder: Path) -> None:
    bus = MessageBus().with_persistence(f"sqlite:///{folder}/bus.db?durability=D1")
    bus.create_channel("c", persistent=True)
    _loop_ends(schedule, bus)


def stopped_and_started(schedule: Schedule, folder: Path) -> None:
    bus, handled = in_memory(), Handled()
    bus.subscribe("c", handled.sync, group="g")

    def stop_and_start() -> None:
        assert bus.stop(GUARD_S)
        bus.start()

    schedule.run(publisher=publishing(bus, 0, 1, 2), stopper=stop_and_start)
    end(bus, handled, 3)


def stopped_and_started_on_a_loop(schedule: Schedule, folder: Path) -> None:
    bus, handled = in_memory(), Handled()
    bus.subscribe("c", handled.slow, group="g", concurrency=2)

    def stop_and_start() -> None:
        assert bus.stop(GUARD_S)
        bus.start()

    schedule.run(publisher=publishing(bus, 0, 1, 2), stopper=stop_and_start)
    end(bus, handled, 3)


def blocked_publishers(schedule: Schedule, folder: Path) -> None:
    bus, handled = SyncMessageBus(), Handled()
    bus.create_channel("c", max_queue_size=1, drop_policy="block", block_timeout=GUARD_S)
    bus.subscribe("c", handled.sync, group="g")
    schedule.run(one=publishing(bus, 0, 1, 2), two=publishing(bus, 3, 4, 5))
    end(bus, handled, 6)


def durable_blocked_publishers(schedule: Schedule, folder: Path) -> None:
    bus, handled = SyncMessageBus(), Handled()
    bus.with_persistence(f"sqlite:///{folder}/bus.db?durability=D1")
    bus.create_channel("c", persistent=True, max_queue_size=1, drop_policy="block", block_timeout=GUARD_S)
    bus.subscribe("c", handled.sync, group="g")
    schedule.run(one=publishing(bus, 0, 1), two=publishing(bus, 2, 3))
    end(bus, handled, 4)


def two_committers(schedule: Schedule, folder: Path) -> None:
    """Senders and a receiver that commit for each other."""
    bus, handled = durable(folder), Handled()
    bus.create_queue("q")

    def send(*bodies: int) -> Callable[[], None]:
        return lambda: [bus.send("q", body) for body in bodies] and None

    def receive() -> None:
        while sum(handled.bodies.values()) < 4:
            (received,) = bus.receive_batch("q", 1, GUARD_S)
            with received:
                handled.sync(received.message)

    schedule.run(one=send(0, 1), two=send(2, 3), receiver=receive)
    end(bus, handled, 4)


def two_receivers(schedule: Schedule, folder: Path) -> None:
    """Each of them waits for one message: no wake-up is lost between them."""
    bus, handled = SyncMessageBus(), Handled()
    bus.create_queue("q")

    def receive() -> None:
        (received,) = bus.receive_batch("q", 1, GUARD_S)
        with received:
            handled.sync(received.message)

    schedule.run(one=receive, two=receive, sender=lambda: [bus.send("q", body) for body in (0, 1)])
    end(bus, handled, 2)


def cancelled_receivers(schedule: Schedule, folder: Path) -> None:
    """Receivers on a loop are cancelled while a thread sends: what they did not get was never delivered."""
    bus, handled = MessageBus().with_persistence(f"sqlite:///{folder}/bus.db?durability=D1"), Handled()

    async def received(turns: int) -> None:
        task = asyncio.ensure_future(bus.receive_batch("q", 1, GUARD_S))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            (message,) = await task
        except asyncio.CancelledError:
            return
        await settled(message)

    async def settled(message: Any) -> None:
        assert message.delivery_count == 1, "a receiver that was cancelled counts as a delivery"
        handled.sync(message.message)
        await message.complete()

    async def receive() -> None:
        await asyncio.gather(*[received(turns) for turns in (1, 2, 3, 5, 8, 13)])

    async def rest() -> None:
        while messages := await bus.receive_batch("q", 10, 0):
            for message in messages:
                await settled(message)
        await bus.close(GUARD_S)

    def send() -> None:
        store = bus._runtime.queues()
        for body in range(4):
            store.send("q", body, {}).wait()

    asyncio.run(made(bus))
    schedule.run(sender=send, looper=lambda: asyncio.run(receive()))
    asyncio.run(rest())
    handled.assert_each_once(4)


async def made(bus: Any) -> None:
    await bus.create_queue("q")


def closed_while_published(schedule: Schedule, folder: Path) -> None:
    """What was accepted is handled, or in the file when that is opened again."""
    bus, handled = durable(folder), Handled()
    bus.subscribe("c", handled.sync, group="g")
    accepted: list[int] = []

    def publish() -> None:
        for body in range(3):
            try:
                bus.publish("c", body)
            except BusClosed:
                return
            accepted.append(body)

    schedule.run(publisher=publish, closer=lambda: bus.close(GUARD_S))
    again = durable(folder)
    again.subscribe("c", handled.sync, group="g")
    end(again, handled, len(accepted))


RACES: Final[tuple[Race, ...]] = (
    sync_member_leaves,
    async_member_leaves,
    async_member_leaves_to_a_sync_one,
    durable_member_leaves,
    durable_async_member_leaves,
    last_member_is_followed,
    durable_last_member_is_followed,
    messages_wait_for_a_member,
    durable_messages_wait_for_a_member,
    an_inline_member_leaves,
    loop_ends,
    durable_loop_ends,
    stopped_and_started,
    stopped_and_started_on_a_loop,
    blocked_publishers,
    durable_blocked_publishers,
    two_committers,
    two_receivers,
    cancelled_receivers,
    closed_while_published,
)
