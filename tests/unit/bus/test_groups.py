"""Groups: different ones both get, members of one compete."""

import asyncio
import functools
import threading

from tests.unit.bus.probes import GUARD_S, Collector, Gate
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message

_got: list[tuple[str, object]] = []


def handler_one(message: Message) -> None:
    _got.append(("one", message.body))


def handler_two(message: Message) -> None:
    _got.append(("two", message.body))


def test_two_handlers_both_get_every_message(sync_bus: SyncMessageBus) -> None:
    _got.clear()
    one = sync_bus.subscribe("c", handler_one)
    sync_bus.subscribe("c", handler_two)
    assert one.group.endswith("handler_one")  # type: ignore[attr-defined]
    sync_bus.publish("c", 1)
    sync_bus.publish("c", 2)
    assert sync_bus.drain(10)
    assert sorted(_got) == [("one", 1), ("one", 2), ("two", 1), ("two", 2)]


def test_the_same_handler_twice_competes_with_itself(sync_bus: SyncMessageBus) -> None:
    # The default group is the handler's name.
    _got.clear()
    sync_bus.subscribe("c", handler_one)
    sync_bus.subscribe("c", handler_one)
    sync_bus.publish("c", 1)
    assert sync_bus.drain(10)
    assert _got == [("one", 1)]


def test_closures_lambdas_partials_and_methods_are_handlers_of_their_own(sync_bus: SyncMessageBus) -> None:
    # They share a qualified name, but no group=.
    collectors = [Collector() for _ in range(8)]

    def made(got: Collector):  # type: ignore[no-untyped-def]
        def handler(message: Message) -> None:
            got(message)

        return handler

    def partial_target(got: Collector, message: Message) -> None:
        got(message)

    sync_bus.subscribe("c", made(collectors[0]))
    sync_bus.subscribe("c", made(collectors[1]))
    sync_bus.subscribe("c", lambda message: collectors[2](message))
    sync_bus.subscribe("c", lambda message: collectors[3](message))
    sync_bus.subscribe("c", functools.partial(partial_target, collectors[4]))
    sync_bus.subscribe("c", functools.partial(partial_target, collectors[5]))
    sync_bus.subscribe("c", collectors[6].__call__)
    sync_bus.subscribe("c", collectors[7].__call__)
    sync_bus.publish("c", 1)
    for got in collectors:
        assert got.wait(1) == [1]
    assert sync_bus.drain(10)
    assert all(len(got.bodies) == 1 for got in collectors)


def test_members_of_an_explicit_group_compete(sync_bus: SyncMessageBus) -> None:
    first, second = Gate(), Collector()
    sync_bus.subscribe("c", first, group="g")
    sync_bus.publish("c", 0)
    first.wait_entered()  # Busy from here on; a second member that were there already could take this one too.
    sync_bus.subscribe("c", second, group="g")
    for number in range(1, 6):
        sync_bus.publish("c", number)
    second.wait(5)
    first.open()
    assert sync_bus.drain(10)
    bodies = [message.body for message in first.messages] + second.bodies
    assert sorted(bodies, key=str) == [0, 1, 2, 3, 4, 5]


def test_the_same_group_on_two_channels_is_two_groups(sync_bus: SyncMessageBus) -> None:
    got = Collector()
    sync_bus.subscribe("a", got, group="g")
    sync_bus.subscribe("b", got, group="g")
    sync_bus.publish("a", 1)
    sync_bus.publish("b", 2)
    assert sorted(got.wait(2), key=str) == [1, 2]


def test_a_member_that_leaves_gives_its_backlog_to_the_others(sync_bus: SyncMessageBus) -> None:
    sync_bus.stop(10)
    leaving = sync_bus.subscribe("c", Collector(), group="g")
    staying = Collector()
    sync_bus.subscribe("c", staying, group="g")
    for number in range(3):
        sync_bus.publish("c", number)
    leaving.cancel()  # type: ignore[attr-defined]
    sync_bus.start()
    assert staying.wait(3) == [0, 1, 2]


def test_hand_over_is_in_order_with_one_slot(sync_bus: SyncMessageBus) -> None:
    sync_bus.stop(10)
    got = Collector()
    sync_bus.subscribe("c", got, concurrency=1)
    for number in range(300):
        sync_bus.publish("c", number, number % 3)
    sync_bus.start()
    expected = [number for level in range(3) for number in range(level, 300, 3)]
    assert got.wait(300) == expected


def test_concurrency_lets_as_many_handlers_run_at_once_and_no_more(sync_bus: SyncMessageBus) -> None:
    together = threading.Barrier(3)
    running: list[int] = []
    most: list[int] = []

    def handler(message: Message) -> None:
        running.append(1)
        most.append(len(running))
        together.wait(GUARD_S)
        running.pop()
        together.wait(GUARD_S)

    sync_bus.subscribe("c", handler, concurrency=3, retry_attempts=0)
    for number in range(9):
        sync_bus.publish("c", number)
    assert sync_bus.drain(GUARD_S)
    assert len(most) == 9
    assert max(most) == 3
    assert sync_bus.metrics()["errors"] == 0


async def test_concurrency_of_async_handlers(async_bus: MessageBus) -> None:
    running = 0
    most = 0
    three = asyncio.Event()

    async def handler(message: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            three.set()
        await asyncio.wait_for(three.wait(), GUARD_S)
        running -= 1

    async_bus.subscribe("c", handler, concurrency=3, retry_attempts=0)
    for number in range(9):
        await async_bus.publish("c", number)
    assert await async_bus.drain(GUARD_S)
    assert most == 3
    assert async_bus.metrics()["dispatched"] == 9
