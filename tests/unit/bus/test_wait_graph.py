"""Handlers that would wait for each other: one of them gets an error at once, and the others continue."""

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S, HandTimers, TimersClock, event_wait
from tests.unit.bus.test_implicit_backpressure import assert_nothing_waits, blocked_count, until_blocked
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message
from unibus.errors import QueueFull, RequestFailed

# What makes its channel full, after the message that is in-flight: implicit channels have a bound of 1,000.
BOUNDS = {"implicit": 1_000, "block": 2}


class Ring:
    """Channels in a ring. The handler of each publishes its first message on to the next channel, when all are full."""

    def __init__(self, names: list[str], bound: int) -> None:
        self.names = names
        self.bound = bound
        self.handled: dict[str, list[object]] = {name: [] for name in names}
        self.errors: list[QueueFull] = []
        self.passed = 0
        self._entered = threading.Semaphore(0)
        self._go = threading.Event()

    def next_of(self, name: str) -> str:
        return self.names[(self.names.index(name) + 1) % len(self.names)]

    def wait_entered(self) -> None:
        for _ in self.names:
            assert self._entered.acquire(timeout=GUARD_S)

    def go(self) -> None:
        self._go.set()

    def takes(self, message: Message) -> bool:
        """Note the message. True for the first one, which is published on."""
        self.handled[message.channel].append(message.body)
        return message.body == "first"

    def sync_handler(self, publish: Callable[[str, object], object]) -> Callable[[Message], None]:
        def handler(message: Message) -> None:
            if self.takes(message):
                self._entered.release()
                assert self._go.wait(GUARD_S)
                self._note(lambda: publish(self.next_of(message.channel), "passed on"))

        return handler

    def async_handler(
        self, publish: Callable[[str, object], Awaitable[object]]
    ) -> Callable[[Message], Awaitable[None]]:
        async def handler(message: Message) -> None:
            if self.takes(message):
                self._entered.release()
                await asyncio.to_thread(self._go.wait, GUARD_S)
                try:
                    await publish(self.next_of(message.channel), "passed on")
                    self.passed += 1
                except QueueFull as error:
                    self.errors.append(error)

        return handler

    def _note(self, publish: Callable[[], object]) -> None:
        try:
            publish()
            self.passed += 1
        except QueueFull as error:
            self.errors.append(error)

    def assert_broken_once(self) -> None:
        """One handler got an error that names the cycle; the others passed their message on. Nothing is lost."""
        assert len(self.errors) == 1
        assert self.passed == len(self.names) - 1
        turns = [self.names[step:] + self.names[: step + 1] for step in range(len(self.names))]
        cycles = [" → ".join(repr(name) for name in turn) for turn in turns]
        assert any(cycle in self.errors[0].hint for cycle in cycles), self.errors[0].hint
        for bodies in self.handled.values():
            passed = [body for body in bodies if body == "passed on"]
            assert [body for body in bodies if body != "passed on"] == ["first", *range(self.bound)]
            assert len(passed) <= 1
        assert sum(bodies.count("passed on") for bodies in self.handled.values()) == self.passed


@pytest.fixture(params=list(BOUNDS))
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make_channels(bus: SyncMessageBus | MessageBus, policy: str, names: list[str]) -> None:
    if policy == "block":
        for name in names:
            bus.create_channel(name, max_queue_size=BOUNDS[policy], drop_policy="block")


def passing_on(bus: SyncMessageBus, name: str) -> Callable[[Message], None]:
    def handler(message: Message) -> None:
        bus.publish(name, message.body)

    return handler


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]], ids=["itself", "two", "three"])
def test_threads_that_publish_in_a_ring(sync_bus: SyncMessageBus, policy: str, names: list[str]) -> None:
    make_channels(sync_bus, policy, names)
    ring = Ring(names, BOUNDS[policy])
    for name in names:
        sync_bus.subscribe(name, ring.sync_handler(sync_bus.publish), 0)
        sync_bus.publish(name, "first")
    ring.wait_entered()
    for name in names:
        sync_bus.publish_many(name, range(ring.bound))
    ring.go()
    assert sync_bus.drain(GUARD_S)
    ring.assert_broken_once()
    assert_nothing_waits(sync_bus, names[0])


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]], ids=["itself", "two", "three"])
async def test_tasks_that_publish_in_a_ring(async_bus: MessageBus, policy: str, names: list[str]) -> None:
    make_channels(async_bus, policy, names)
    ring = Ring(names, BOUNDS[policy])
    for name in names:
        async_bus.subscribe(name, ring.async_handler(async_bus.publish), 0)
        await async_bus.publish(name, "first")
    await asyncio.to_thread(ring.wait_entered)
    for name in names:
        await async_bus.publish_many(name, range(ring.bound))
    ring.go()
    assert await async_bus.drain(GUARD_S)
    ring.assert_broken_once()
    assert_nothing_waits(async_bus, names[0])


async def test_threads_and_tasks_that_publish_in_a_ring(async_bus: MessageBus) -> None:
    names = ["a", "b", "c", "d"]
    make_channels(async_bus, "block", names)
    ring = Ring(names, BOUNDS["block"])
    for name, is_async in zip(names, itertools.cycle([True, False])):
        handler = ring.async_handler(async_bus.publish) if is_async else ring.sync_handler(async_bus.publish_from_sync)
        async_bus.subscribe(name, handler, 0)
        await async_bus.publish(name, "first")
    await asyncio.to_thread(ring.wait_entered)
    for name in names:
        await async_bus.publish_many(name, range(ring.bound))
    ring.go()
    assert await async_bus.drain(GUARD_S)
    ring.assert_broken_once()


def test_a_group_of_a_pattern_publishes_to_a_channel_that_it_takes(sync_bus: SyncMessageBus, policy: str) -> None:
    make_channels(sync_bus, policy, ["x.1", "x.2"])
    entered, go = threading.Event(), threading.Event()
    errors: list[QueueFull] = []

    def handler(message: Message) -> None:
        if message.body == "first":
            entered.set()
            event_wait(go)
            try:
                sync_bus.publish("x.2", "no")
            except QueueFull as error:
                errors.append(error)

    sync_bus.subscribe("x.*", handler, 0)
    sync_bus.publish("x.1", "first")
    event_wait(entered)
    sync_bus.publish_many("x.1", range(BOUNDS[policy]))  # One queue for all channels of the pattern.
    go.set()
    assert sync_bus.drain(GUARD_S)
    assert [error.hint.split(";")[0] for error in errors] == ["the channels form a cycle: 'x.2' → 'x.2'"]


def test_a_group_of_a_pattern_in_a_ring(sync_bus: SyncMessageBus, policy: str) -> None:
    make_channels(sync_bus, policy, ["x.1", "b"])
    ring = Ring(["x.1", "b"], BOUNDS[policy])
    for target in ("x.*", "b"):
        sync_bus.subscribe(target, ring.sync_handler(sync_bus.publish), 0)
    for name in ring.names:
        sync_bus.publish(name, "first")
    ring.wait_entered()
    for name in ring.names:
        sync_bus.publish_many(name, range(ring.bound))
    ring.go()
    assert sync_bus.drain(GUARD_S)
    ring.assert_broken_once()


def test_a_chain_without_a_cycle_waits(sync_bus: SyncMessageBus, policy: str) -> None:
    # a → b, and b is only slow: the handler of a waits for it.
    make_channels(sync_bus, policy, ["b"])
    entered, go = threading.Event(), threading.Event()
    got: list[object] = []

    def slow(message: Message) -> None:
        entered.set()
        event_wait(go)
        got.append(message.body)

    sync_bus.subscribe("b", slow)
    sync_bus.subscribe("a", passing_on(sync_bus, "b"), 0)
    sync_bus.publish("b", "first")
    event_wait(entered)
    sync_bus.publish_many("b", range(BOUNDS[policy]))
    sync_bus.publish("a", "passed on")
    until_blocked(sync_bus, "b")
    go.set()
    assert sync_bus.drain(GUARD_S)
    assert got == ["first", *range(BOUNDS[policy]), "passed on"]
    assert_nothing_waits(sync_bus, "b")


def test_a_cycle_is_an_error_only_while_all_its_handlers_wait(sync_bus: SyncMessageBus) -> None:
    # a publishes to b, and b to a. b waits for a place in a, and a finds one in b: there is no deadlock.
    make_channels(sync_bus, "block", ["a", "b"])
    entered, go = threading.Event(), threading.Event()
    got: list[object] = []

    def slow(message: Message) -> None:
        got.append(message.body)
        if message.body == "first":
            entered.set()
            event_wait(go)
            sync_bus.publish("b", "from a")

    sync_bus.subscribe("a", slow, 0)
    sync_bus.subscribe("b", passing_on(sync_bus, "a"), 0)
    sync_bus.publish("a", "first")
    event_wait(entered)
    sync_bus.publish_many("a", [1, 2])
    sync_bus.publish("b", "from outside")
    until_blocked(sync_bus, "a")
    go.set()
    assert sync_bus.drain(GUARD_S)
    assert got == ["first", 1, 2, "from outside", "from a"]


# Requests


def test_a_handler_whose_requester_waits_for_it_is_refused(sync_bus: SyncMessageBus) -> None:
    # The handler of a waits for the reply of y, whose handler publishes to a.
    make_channels(sync_bus, "block", ["a"])
    entered, go = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def asks(message: Message) -> None:
        if message.body == "first":
            entered.set()
            event_wait(go)
            try:
                sync_bus.request("y", "question", timeout=None)
            except RequestFailed as error:
                errors.append(error)

    sync_bus.subscribe("a", asks, 0)
    sync_bus.subscribe("y", passing_on(sync_bus, "a"), 0)
    sync_bus.publish("a", "first")
    event_wait(entered)
    sync_bus.publish_many("a", range(2))
    go.set()
    assert sync_bus.drain(GUARD_S)
    assert len(errors) == 1
    assert "'y' → 'a' → 'y'" in str(errors[0])
    assert_nothing_waits(sync_bus, "a")


@pytest.fixture
def hand_bus(hand_timers: HandTimers) -> Iterator[SyncMessageBus]:
    bus = SyncMessageBus(clock=TimersClock(hand_timers))
    yield bus
    bus.close(0.2)


def test_a_request_that_closes_a_cycle_is_found_by_the_timer(hand_bus: SyncMessageBus, hand_timers: HandTimers) -> None:
    # y waits for a place in a already, when the handler of a asks y.
    make_channels(hand_bus, "block", ["a"])
    entered, go = threading.Event(), threading.Event()
    errors: list[BaseException] = []
    asked: list[object] = []

    def asks(message: Message) -> None:
        if message.body == "first":
            entered.set()
            event_wait(go)
            asked.append(hand_bus.request("y", "question", timeout=None))

    def answers(message: Message) -> str:
        if message.body == "order":
            try:
                hand_bus.publish("a", "late")
            except QueueFull as error:
                errors.append(error)
        return "answer"

    hand_bus.subscribe("a", asks, 0)
    hand_bus.subscribe("y", answers, 0)
    hand_bus.publish("a", "first")
    event_wait(entered)
    hand_bus.publish_many("a", range(2))
    hand_bus.publish("y", "order")
    until_blocked(hand_bus, "a")
    hand_timers.fire()
    assert errors == []
    go.set()
    hand_timers.fire_until(lambda: bool(errors))
    assert hand_bus.drain(GUARD_S)
    assert asked == ["answer"]
    assert "'y' → 'a' → 'y'" in str(errors[0])
    assert blocked_count(hand_bus, "a") == 0


# Persistent channels


def make_persistent(bus: SyncMessageBus | MessageBus, names: list[str]) -> None:
    """One more than `Ring.bound`: a message whose handler runs still counts on a persistent channel."""
    for name in names:
        bus.create_channel(name, persistent=True, max_queue_size=3, drop_policy="block")


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]], ids=["itself", "two", "three"])
def test_threads_that_publish_in_a_ring_of_persistent_channels(tmp_path: Path, names: list[str]) -> None:
    with SyncMessageBus(f"sqlite:///{tmp_path}/bus.db") as bus:
        make_persistent(bus, names)
        ring = Ring(names, 2)
        for name in names:
            bus.subscribe(name, ring.sync_handler(bus.publish), 0, group="g")
            bus.publish(name, "first")
        ring.wait_entered()
        for name in names:
            bus.publish_many(name, range(ring.bound))
        ring.go()
        assert bus.drain(GUARD_S)
        ring.assert_broken_once()
        assert bus._runtime.backpressure.graph._waits == {}


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]], ids=["itself", "two", "three"])
async def test_tasks_that_publish_in_a_ring_of_persistent_channels(tmp_path: Path, names: list[str]) -> None:
    async with MessageBus(f"sqlite:///{tmp_path}/bus.db") as bus:
        make_persistent(bus, names)
        ring = Ring(names, 2)
        for name in names:
            bus.subscribe(name, ring.async_handler(bus.publish), 0, group="g")
            await bus.publish(name, "first")
        await asyncio.to_thread(ring.wait_entered)
        for name in names:
            await bus.publish_many(name, range(ring.bound))
        ring.go()
        assert await bus.drain(GUARD_S)
        ring.assert_broken_once()
        assert bus._runtime.backpressure.graph._waits == {}


async def test_a_ring_of_persistent_channels_and_channels_in_memory(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    async with MessageBus(f"sqlite:///{tmp_path}/bus.db") as bus:
        make_persistent(bus, ["a", "c"])
        for name in ("b", "d"):
            bus.create_channel(name, persistent=False, max_queue_size=2, drop_policy="block")
        ring = Ring(names, 2)
        for name in names:
            bus.subscribe(name, ring.async_handler(bus.publish), 0, group="g")
            await bus.publish(name, "first")
        await asyncio.to_thread(ring.wait_entered)
        for name in names:
            await bus.publish_many(name, range(ring.bound))
        ring.go()
        assert await bus.drain(GUARD_S)
        ring.assert_broken_once()


async def test_a_publish_that_its_handler_does_not_await_is_no_wait(tmp_path: Path) -> None:
    """It is stored when its handler has returned and its own message is settled."""
    bodies: list[object] = []
    publishes: list[Awaitable[object]] = []
    is_passed_on = asyncio.Event()
    async with MessageBus(f"sqlite:///{tmp_path}/bus.db") as bus:
        bus.create_channel("a", persistent=True, max_queue_size=1, drop_policy="block")

        async def handler(message: Message) -> None:
            bodies.append(message.body)
            if message.body == "first":
                publishes.append(bus.publish("a", "second"))
            else:
                is_passed_on.set()

        bus.subscribe("a", handler, 0, group="g")
        await bus.publish("a", "first")
        await asyncio.wait_for(is_passed_on.wait(), GUARD_S)
        await publishes[0]
    assert bodies == ["first", "second"]
