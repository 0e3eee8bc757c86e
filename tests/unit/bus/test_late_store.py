"""The bus on a store whose answers come late: nothing may be read, believed or decided before the answer is there."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import pytest
from opentelemetry.trace import NoOpTracerProvider

from tests.unit.bus.probes import GUARD_S, Collector, Gate
from unibus.bus.api.broker import Broker
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.management.messages.receiving import SettleRequest, release, settle, token_text
from unibus.bus.otel.tracing import instrument
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import COMPLETE, Command, Settle
from unibus.errors import LockLost, QueueFull, QuotaExceeded, SessionLocked
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.pending import Pending, undecided
from unibus.stores.seam.store import ClaimRequest, EntityInfo
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.misbehaving_store import MisbehavingStore


@pytest.fixture(params=range(3))
def late(request: pytest.FixtureRequest, virtual_clock: VirtualClock) -> Iterator[MisbehavingStore]:
    timers = virtual_clock.timers(lambda: True)
    store = MisbehavingStore(EmbeddedStore(MemoryJournal(), virtual_clock, timers), late=request.param)
    virtual_clock.timers(store.is_idle)
    yield store
    store.close()
    timers.stop()


@pytest.fixture
def bus(late: MisbehavingStore, virtual_clock: VirtualClock) -> Iterator[SyncMessageBus]:
    with SyncMessageBus(late, clock=virtual_clock) as opened:
        yield opened


class Hold:
    """Keeps every answer back until it is released: the thread that brings the answers waits in a callback."""

    def __init__(self, store: MisbehavingStore) -> None:
        self._gate = threading.Event()
        entered = threading.Event()

        def wait(_: object) -> None:
            entered.set()
            self._gate.wait(GUARD_S)

        store.entities().on_done(wait)
        assert entered.wait(GUARD_S)

    def release(self) -> None:
        self._gate.set()


def test_a_lock_is_renewed_by_hand_and_by_itself(bus: SyncMessageBus, virtual_clock: VirtualClock) -> None:
    bus.create_queue("q", lock_duration=10)
    bus.send("q", 1)
    (message,) = bus.receive_batch("q", 1)
    virtual_clock.advance(5)
    before = message.locked_until
    message.renew_lock()
    assert message.locked_until is not None
    assert before is not None
    assert (message.locked_until - before).total_seconds() == 5
    with message:
        virtual_clock.advance(60)
    assert bus.receive_batch("q", 1, timeout=0) == []


def test_a_lost_lock_is_reported_and_the_message_is_not_settled(
    bus: SyncMessageBus, virtual_clock: VirtualClock
) -> None:
    bus.create_queue("q", lock_duration=10)
    bus.send("q", 1)
    (message,) = bus.receive_batch("q", 1)
    virtual_clock.advance(11)
    with pytest.raises(LockLost):
        message.complete()
    assert not message.settled


def test_a_missing_queue_is_made_by_the_first_receive(bus: SyncMessageBus) -> None:
    assert bus.receive_batch("new", 1, timeout=0) == []
    assert [info.name for info in bus.entities()] == ["new"]


def test_a_held_session_is_waited_for(bus: SyncMessageBus) -> None:
    bus.create_queue("q", requires_session=True)
    bus.send("q", 1, session_id="s")
    with pytest.raises(SessionLocked), bus.accept_session("q", "s", timeout=0):
        bus.accept_session("q", "s", timeout=0)
    first = bus.accept_session("q", "s")
    got: list[str] = []
    waiting = threading.Thread(target=lambda: got.append(bus.accept_session("q", "s", timeout=GUARD_S).id))
    waiting.start()
    first.close()
    waiting.join(GUARD_S)
    assert got == ["s"]


def test_a_transaction_that_is_refused_late_leaves_its_messages_unsettled(
    bus: SyncMessageBus, late: MisbehavingStore
) -> None:
    bus.create_queue("q")
    bus.send("q", 1)
    (message,) = bus.receive_batch("q", 1)
    claimed = message._claimed
    late.apply([Settle(COMPLETE, claimed.entity, claimed.sequence, claimed.token)]).wait(GUARD_S)
    transaction = bus.transaction()

    def settle_and_send() -> None:
        with transaction:
            message.complete()
            bus.send("other", 1)

    with pytest.raises(LockLost):
        settle_and_send()
    assert (transaction.state, message.settled) == ("failed", False)


def test_a_publish_knows_its_sequence(bus: SyncMessageBus) -> None:
    bus.create_channel("c", persistent=True)
    bus.create_subscription("c", "g")
    assert [bus.publish("c", body).sequence for body in range(3)] == [1, 2, 3]


def test_drain_waits_until_the_settlements_are_decided(bus: SyncMessageBus) -> None:
    bus.create_channel("c", persistent=True)
    heard = Collector()
    bus.subscribe("c", heard, group="g")
    bus.publish_many("c", list(range(20)))
    assert bus.drain(GUARD_S)
    (group,) = [info for info in bus.entities() if info.kind == "subscription"]
    assert (len(heard.messages), group.active, group.locked) == (20, 0, 0)


def test_an_idempotent_group_handles_messages_of_one_id_once(bus: SyncMessageBus) -> None:
    bus.create_channel("c", persistent=True)
    heard = Collector()
    bus.create_subscription("c", "g")
    message = bus.publish("c", "x")
    for _ in range(3):
        bus.publish(message.fresh())
    bus.subscribe("c", heard, group="g", idempotent=True)
    assert bus.drain(GUARD_S)
    assert heard.bodies == ["x"]


def test_a_refused_completion_does_not_count_as_processed(
    bus: SyncMessageBus, late: MisbehavingStore, virtual_clock: VirtualClock
) -> None:
    bus.create_channel("c", persistent=True)
    gate = Gate()
    bus.subscribe("c", gate, group="g", idempotent=True)
    bus.publish("c", 1)
    gate.wait_entered()
    late.refuse_at(1, "apply", LockLost("gone"))
    gate.open()
    virtual_clock.advance(120)
    assert bus.drain(GUARD_S)
    assert len(gate.messages) == 2


async def test_a_cancelled_receive_releases_what_it_gets(late: MisbehavingStore, virtual_clock: VirtualClock) -> None:
    async with MessageBus(late, clock=virtual_clock) as bus:
        await bus.create_queue("q")
        await bus.create_queue("s", requires_session=True)
        await bus.send("q", 1)
        await bus.send("s", 1, session_id="a")
        broker = Broker(bus)
        for call in (
            lambda: bus.receive_batch("q", 1),
            lambda: broker.receive("q", timeout_s=None),
            lambda: bus.accept_session("s", "a"),
            lambda: broker.accept_session("s", "a", timeout_s=None),
        ):
            hold = await asyncio.to_thread(Hold, late)
            calls = sum(late.calls.values())
            task = asyncio.ensure_future(call())
            for _ in range(5):
                await asyncio.sleep(0)
            assert sum(late.calls.values()) == calls + 1  # It is asked, and cannot be answered.
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            hold.release()
            await virtual_clock.advance_async(0)  # Waits for the answers.
        (message,) = await bus.receive_batch("q", 1, timeout=0)
        assert message.delivery_count == 1
        assert (await bus.accept_session("s", "a", timeout=0)).id == "a"


class Interrupted:
    """An answer of the store whose wait is interrupted: by Ctrl-C, or by a signal handler that raises."""

    is_decided = is_accepted = True

    def __init__(self, pending: Pending[list[Claimed]], error: type[BaseException]) -> None:
        self._pending = pending
        self._error = error

    def wait(self, timeout_s: float | None = None) -> list[Claimed]:
        raise self._error

    def on_decided(self, call: Callable[[Pending[list[Claimed]]], None]) -> None:
        self._pending.on_decided(call)


class InterruptedStore(MisbehavingStore):
    error: type[BaseException] | None = None

    def claim(self, request: ClaimRequest) -> Pending[list[Claimed]]:
        pending = super().claim(request)
        return pending if self.error is None else cast("Pending[list[Claimed]]", Interrupted(pending, self.error))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("is_deferred", [False, True])
def test_an_interrupted_receive_releases_what_it_gets(
    error: type[BaseException], is_deferred: bool, virtual_clock: VirtualClock
) -> None:
    timers = virtual_clock.timers(lambda: True)
    store = InterruptedStore(EmbeddedStore(MemoryJournal(), virtual_clock, timers))
    with SyncMessageBus(store, clock=virtual_clock) as bus:
        sequence = bus.send("q", 1).sequence
        if is_deferred:
            (message,) = bus.receive_batch("q", 1, timeout=0)
            message.defer()
        store.error = error
        with pytest.raises(error):
            bus.receive_deferred("q", [sequence]) if is_deferred else bus.receive_batch("q", 1, timeout=0)
        store.error = None
        found = bus.entities.get("q")
        assert (found.locked, found.active + found.deferred) == (0, 1)


async def test_settling_each_reports_a_late_refusal_for_its_message_only(
    late: MisbehavingStore, virtual_clock: VirtualClock
) -> None:
    async with MessageBus(late, clock=virtual_clock) as bus:
        broker = Broker(bus)
        await bus.create_queue("q")
        await bus.send_many("q", [1, 2, 3])
        gone, second, third = await broker.receive("q", 3)
        await broker.settle(COMPLETE, gone.token)
        tokens = [token_text(each.token) for each in (gone, second)]
        found = await settle(broker, "q", SettleRequest("complete", tokens, each=True))
        assert [None if each.error is None else each.error.code for each in found] == [LockLost.code, None]
        await release(broker, [gone, third])
        assert [each.sequence for each in await broker.receive("q", 3)] == [third.sequence]


async def test_a_late_refusal_of_a_traced_publish_without_waiting_is_logged(
    late: MisbehavingStore, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with MessageBus(late, clock=virtual_clock) as bus:
        instrument(bus, NoOpTracerProvider())
        bus.create_channel("c", persistent=True)
        bus.publish_from_sync("c", 1)
        await virtual_clock.advance_async(0)  # Waits for the answers.
        late.refuse_at(1, "apply", QuotaExceeded("full"))
        bus.publish_from_sync("c", 2)
        await virtual_clock.advance_async(0)
    assert "a publish to 'c' that was not awaited has failed: full" in caplog.text


class Unanswered(MisbehavingStore):
    """Decides no batch while it `holds`, and answers everything else: a read overtakes the batches before it."""

    def __init__(self, store: EmbeddedStore) -> None:
        super().__init__(store, late=0)
        self.holds = False
        self.is_asked = threading.Event()
        self._real = store
        self._held: list[Callable[[], None]] = []

    def apply(
        self, commands: Sequence[Command], durability: Durability | None = None, batch_id: str = "", first_ns: int = 0
    ) -> Pending[list[object]]:
        if not self.holds:
            return super().apply(commands, durability, batch_id, first_ns)
        answer: Pending[list[object]] = undecided()
        self._held.append(lambda: answer.resolve(self._real.apply(commands, durability).wait(GUARD_S)))
        self.is_asked.set()
        return answer

    def release(self) -> None:
        self.holds = False
        while self._held:
            self._held.pop(0)()


@pytest.fixture
def unanswered(virtual_clock: VirtualClock) -> Iterator[Unanswered]:
    timers = virtual_clock.timers(lambda: True)
    store = Unanswered(EmbeddedStore(MemoryJournal(), virtual_clock, timers))
    virtual_clock.timers(store.is_idle)
    yield store
    store.close()
    timers.stop()


def test_a_place_is_taken_until_its_publish_is_answered(
    unanswered: Unanswered, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_read = threading.Event()
    read = unanswered.catalog.page

    def page(kind: int, topic: str, skip: int, top: int) -> Pending[list[EntityInfo]]:
        found = read(kind, topic, skip, top)
        found.on_done(lambda _: is_read.set())
        return found

    refused: list[object] = []

    def publish(body: int) -> None:
        try:
            bus.publish("c", body)
        except QueueFull as error:
            refused.append(error)

    with SyncMessageBus(unanswered, clock=virtual_clock) as bus:
        bus.create_channel("c", persistent=True, max_queue_size=2)
        bus.create_subscription("c", "g")
        bus.publish("c", 1)
        unanswered.holds = True
        first = threading.Thread(target=publish, args=(2,))
        first.start()
        assert unanswered.is_asked.wait(GUARD_S)
        monkeypatch.setattr(unanswered.catalog, "page", page)
        second = threading.Thread(target=publish, args=(3,))
        second.start()
        assert is_read.wait(GUARD_S)  # The depth is 1, and one more place is taken.
        unanswered.release()
        for each in (first, second):
            each.join(GUARD_S)
        assert bus.queue_size("c") == 2
        assert len(refused) == 1


async def test_drain_waits_until_a_publish_is_answered(unanswered: Unanswered, virtual_clock: VirtualClock) -> None:
    heard = Collector()
    async with MessageBus(unanswered, clock=virtual_clock) as bus:
        bus.create_channel("c", persistent=True)
        bus.subscribe("c", heard, group="g")
        assert await bus.drain(GUARD_S)
        unanswered.holds = True
        bus.publish_from_sync("c", 1)
        assert not await bus.drain(0)
        unanswered.release()
        assert await bus.drain(GUARD_S)
        assert heard.bodies == [1]
