"""Persistent channels that are full: refusing, waiting for space, and what is not reported before it is durable."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, Gate, HandClock, HandTimers, Publisher, run_together
from tests.unit.bus.rigs import BreakingJournal, NoTimers, Rig, fails
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.settings import ChannelConfig
from unibus.clock import SYSTEM_CLOCK
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.state.changes import Change
from unibus.errors import (
    BusClosed,
    ConfigInvalid,
    QueueFull,
    QuotaExceeded,
    RateLimited,
    StoreFailed,
    StoreFull,
    UsageError,
)
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.seam.journal import SnapshotSlice

GROUP = "c/Subscriptions/g"


def full(rig: Rig, size: int = 2, **settings: object) -> None:
    """A channel whose group has as many messages as it may."""
    rig.create_channel("c", persistent=True, max_queue_size=size, **settings)
    rig.create_subscription("c", "g")
    rig.publish_many("c", list(range(size)))


def in_line(rig: Rig) -> int:
    queue = rig.bus._durable._publishing._publish_queues.get("c")
    return 0 if queue is None else len(queue._waiting)


def stand_in_line(rig: Rig, body: object = None, publish: Callable[[], object] | None = None) -> Publisher:
    """A publisher that waits: it stands in line when this returns."""
    before = in_line(rig)
    publisher = Publisher(publish or (lambda: rig.publish("c", body)))
    for _ in range(1_000):
        if in_line(rig) > before or not publisher.is_waiting:
            break
        threading.Event().wait(0.005)
    return publisher


def bodies(rig: Rig, entity: str = GROUP) -> list[object]:
    return [message.body for message in rig.peek(entity, 100)]


# Refusing


def test_nobody_asked_for_a_bound_so_there_is_none(rig: Rig) -> None:
    rig.create_channel("c", persistent=True)
    rig.create_subscription("c", "g")
    count = ChannelConfig().max_queue_size + 1
    rig.publish_many("c", list(range(count)))
    assert rig.bus.queue_size("c") == count


def test_a_full_channel_refuses_and_keeps_nothing_of_it(rig: Rig) -> None:
    full(rig)
    with pytest.raises(QueueFull) as caught:
        rig.publish("c", "more")
    assert caught.value.item.body == "more"  # type: ignore[attr-defined]
    with pytest.raises(QueueFull) as caught:
        rig.publish_many("c", ["a", "b"])
    assert [message.body for message in caught.value.item] == ["a", "b"]  # type: ignore[attr-defined]
    assert bodies(rig) == [0, 1]
    assert rig.bus.snapshot("c").channels[0].outcomes["queue_full"] == 3
    rig.do(rig.one(GROUP).complete)
    with pytest.raises(QueueFull):
        rig.publish_many("c", ["a", "b"])  # All or none.
    rig.publish("c", "room")
    assert bodies(rig) == [1, "room"]


def test_what_is_locked_or_waits_for_a_retry_is_not_settled(rig: Rig) -> None:
    full(rig)
    first, second = rig.take(GROUP, 2)
    with pytest.raises(QueueFull):
        rig.publish("c", "more")
    rig.do(lambda: first.abandon(delay=60))
    rig.do(second.defer)
    with pytest.raises(QueueFull):
        rig.publish("c", "more")
    assert rig.bus.queue_size("c") == 2


def test_the_slowest_group_counts(rig: Rig) -> None:
    full(rig)
    rig.create_subscription("c", "quick")
    with pytest.raises(QueueFull):
        rig.publish("c", 1)
    assert bodies(rig, "c/Subscriptions/quick") == []
    rig.delete_entity(GROUP)
    rig.publish("c", 1)
    assert bodies(rig, "c/Subscriptions/quick") == [1]


def test_what_is_kept_counts_while_there_is_no_group(rig: Rig) -> None:
    rig.create_channel("c", persistent=True, max_queue_size=2)
    rig.publish_many("c", [1, 2])
    with pytest.raises(QueueFull):
        rig.publish("c", 3)
    got = Collector()
    rig.subscribe("c", got, group="g")
    assert got.wait(2) == [1, 2]
    assert rig.drain(GUARD_S)
    rig.publish("c", 3)
    assert got.wait(3) == [1, 2, 3]


def test_a_bound_holds_after_a_restart(file_rig: Rig) -> None:
    full(file_rig)
    file_rig.reopen()
    file_rig.create_channel("c", persistent=True, max_queue_size=2)
    with pytest.raises(QueueFull):
        file_rig.publish("c", "more")


def test_without_a_bound_nothing_is_full(rig: Rig) -> None:
    rig.create_channel("c", persistent=True, max_queue_size=0)
    rig.create_subscription("c", "g")
    rig.publish_many("c", list(range(1_500)))
    assert rig.bus.queue_size("c") == 1_500


def test_many_threads_do_not_go_over_the_bound(store_path: Path | None) -> None:
    rig = Rig(SyncMessageBus, store_path)
    rig.create_channel("c", persistent=True, max_queue_size=20)
    rig.create_subscription("c", "g")
    refused: list[object] = []

    def publish(number: int) -> None:
        for body in range(10):
            try:
                rig.publish("c", (number, body))
            except QueueFull as error:
                refused.append(error)

    run_together(4, publish)
    assert (rig.counts(GROUP)[0], len(refused)) == (20, 20)
    rig.end()


def test_the_quota_of_a_group_is_another_matter(rig: Rig) -> None:
    full(rig, 5)
    rig.take(GROUP, 2)
    rig.update_entity(GROUP, max_count=5)
    rig.create_channel("c", persistent=True, max_queue_size=50, update=True)
    with pytest.raises(QuotaExceeded):
        rig.publish("c", "more")


def test_dropping_policies_are_refused_where_they_are_set(rig: Rig) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        rig.create_channel("c", persistent=True, drop_policy="drop_old")
    assert "block" in caught.value.hint
    assert "c" not in rig.bus.channels()
    assert rig.entities() == []
    rig.create_channel("c", ChannelConfig(persistent=False, drop_policy="drop_old"))
    rig.create_channel("d", persistent=True)
    with pytest.raises(ConfigInvalid):
        rig.create_channel("d", persistent=True, drop_policy="drop_old", update=True)
    rig.publish("d", 1)
    assert rig.counts("d")[0] == 1


def test_inside_of_a_transaction_nobody_waits(store_path: Path | None) -> None:
    rig = Rig(SyncMessageBus, store_path)
    full(rig, drop_policy="block")
    rig.do(rig.one(GROUP).complete)
    with rig.bus.transaction():
        rig.bus.publish("c", "room")
        with pytest.raises(QueueFull):
            rig.bus.publish("c", "none")
    assert bodies(rig) == [1, "room"]
    with fails(ValueError, match="back"), rig.bus.transaction():
        rig.do(rig.one(GROUP).complete)
        raise ValueError("back")
    rig.complete_many(rig.take(GROUP, 1))
    rig.bus.publish("c", "room again")
    rig.end()


# Waiting


def test_a_publisher_waits_until_a_handler_is_done(rig: Rig) -> None:
    rig.create_channel("c", persistent=True, max_queue_size=1, drop_policy="block")
    gate = Gate()
    rig.subscribe("c", gate, group="g")
    rig.publish("c", 1)
    gate.wait_entered()
    publisher = stand_in_line(rig, 2)
    assert publisher.is_waiting
    assert rig.bus.queue_size("c") == 1
    gate.open()
    publisher.join()
    assert publisher.error is None
    assert rig.drain(GUARD_S)
    assert [message.body for message in gate.messages] == [1, 2]


def test_first_come_first_served(rig: Rig) -> None:
    full(rig, drop_policy="block")
    publishers = [stand_in_line(rig, body) for body in ("a", "b", "c")]
    for _ in range(3):
        rig.do(rig.one(GROUP).complete)
    for publisher in publishers:
        publisher.join()
        assert publisher.error is None
    assert bodies(rig) == ["b", "c"]


@pytest.mark.parametrize(
    "free",
    [
        lambda rig: rig.do(rig.one(GROUP).complete),
        lambda rig: rig.complete_many(rig.take(GROUP, 2)),
        lambda rig: rig.do(partial(rig.one(GROUP).dead_letter, "torn")),
        lambda rig: rig.receive_batch(GROUP, 1, timeout=0, mode="receive_and_delete"),
        lambda rig: rig.bus.pop("c"),
        lambda rig: rig.create_channel("c", persistent=True, max_queue_size=3, drop_policy="block", update=True),
        lambda rig: rig.delete_entity(GROUP),
    ],
    ids=["complete", "complete_many", "dead_letter", "receive_and_delete", "pop", "bound", "delete"],
)
def test_whatever_makes_room_frees_who_waits(rig: Rig, free: Callable[[Rig], object]) -> None:
    full(rig, drop_policy="block")
    publisher = stand_in_line(rig, "waiting")
    assert publisher.is_waiting
    free(rig)
    publisher.join()
    assert publisher.error is None


def test_a_time_out_is_queue_full_and_leaves_no_trace(
    timed_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    full(timed_rig, drop_policy="block", block_timeout=5)
    publisher = stand_in_line(timed_rig, "late")
    assert publisher.is_waiting
    hand_timers.wait_for(5)
    hand_clock.advance(5)
    hand_timers.fire()
    publisher.join()
    assert isinstance(publisher.error, QueueFull)
    assert publisher.error.item.body == "late"  # type: ignore[attr-defined]
    assert timed_rig.bus.snapshot("c").channels[0].outcomes["queue_full"] == 1
    timed_rig.do(timed_rig.one(GROUP).complete)
    assert bodies(timed_rig) == [1]


def test_in_real_time_too(rig: Rig) -> None:
    full(rig, drop_policy="block", block_timeout=0.02)
    with pytest.raises(QueueFull):
        rig.publish("c", "late")
    with pytest.raises(QueueFull):
        rig.publish_many("c", [1, 2])
    assert bodies(rig) == [0, 1]


def test_many_that_can_never_fit_are_refused_at_once(rig: Rig) -> None:
    rig.create_channel("c", persistent=True, max_queue_size=2, drop_policy="block")
    with pytest.raises(QueueFull):
        rig.publish_many("c", [1, 2, 3])
    assert rig.publish_many("c", []) == []


def test_closing_frees_who_waits_with_an_error(face: type, store_path: Path | None) -> None:
    rig = Rig(face, store_path)
    full(rig, drop_policy="block")
    publisher = stand_in_line(rig, "never")
    rig.close(0.1)
    publisher.join()
    assert isinstance(publisher.error, BusClosed)
    rig.end()


async def test_who_is_cancelled_leaves_the_line(queue_bus: MessageBus) -> None:
    if queue_bus._durable is None:
        queue_bus.with_persistence("memory://")
    queue_bus.create_channel("c", persistent=True, max_queue_size=1, drop_policy="block")
    await queue_bus.create_subscription("c", "g")
    await queue_bus.publish("c", 1)
    tasks = [asyncio.ensure_future(_published(queue_bus, body)) for body in ("cancelled", "next")]
    await asyncio.sleep(0)
    tasks[0].cancel()
    assert isinstance((await asyncio.gather(tasks[0], return_exceptions=True))[0], asyncio.CancelledError)
    (first,) = await queue_bus.receive_batch(GROUP, timeout=0)
    await first.complete()
    message = await asyncio.wait_for(tasks[1], GUARD_S)
    assert message.sequence == 2
    assert [each.body for each in await queue_bus.peek(GROUP, 10)] == ["next"]


async def _published(bus: MessageBus, body: object) -> Message:
    return await bus.publish("c", body)


async def test_the_sync_face_never_blocks_a_loop(store_path: Path | None) -> None:
    rig = Rig(SyncMessageBus, store_path)
    full(rig, drop_policy="block")
    with pytest.raises(QueueFull):
        rig.bus.publish("c", "blocked")
    assert bodies(rig) == [0, 1]
    rig.end()


# Rates


def test_a_rate_says_when_to_come_again(timed_rig: Rig, hand_clock: HandClock) -> None:
    timed_rig.create_channel("c", persistent=True, rate_limit_per_sec=0.5, rate_limit_burst=2)
    timed_rig.publish_many("c", [1, 2])
    with pytest.raises(RateLimited) as caught:
        timed_rig.publish("c", 3)
    assert caught.value.retry_after_s == pytest.approx(2)
    hand_clock.advance(2)
    timed_rig.publish("c", 3)
    with pytest.raises(RateLimited) as caught:
        timed_rig.publish_many("c", [1, 2, 3])
    assert caught.value.retry_after_s == float("inf")
    assert timed_rig.bus.snapshot("c").channels[0].outcomes["rate_limited"] == 4


def test_a_refused_publish_takes_no_token(timed_rig: Rig) -> None:
    timed_rig.create_channel("c", persistent=True, max_queue_size=1, rate_limit_per_sec=0.001, rate_limit_burst=2)
    timed_rig.create_subscription("c", "g")
    timed_rig.publish("c", 1)
    for _ in range(3):
        with pytest.raises(QueueFull):
            timed_rig.publish("c", 2)
    timed_rig.do(timed_rig.one(GROUP).complete)
    timed_rig.publish("c", 2)
    with pytest.raises(RateLimited):
        timed_rig.publish("c", 3)


# Looking


def test_queue_size_is_what_the_slowest_group_has_not_settled(rig: Rig) -> None:
    rig.create_channel("c", persistent=True)
    assert rig.bus.queue_size("c") == 0
    rig.publish_many("c", [1, 2, 3])
    assert rig.bus.queue_size("c") == 3
    rig.create_subscription("c", "g")
    rig.create_subscription("c", "other")
    rig.complete_many(rig.take(GROUP, 2))
    rig.publish("c", 4)
    assert rig.bus.queue_size("c") == 2
    assert rig.bus.queue_size("unknown") is None


def test_dead_letters_of_all_groups(rig: Rig) -> None:
    rig.create_channel("c", persistent=True)
    assert rig.bus.dead_letters("c") == []
    for name in ("g", "h"):
        rig.create_subscription("c", name)
    rig.publish("c", "torn")
    for name in ("g", "h"):
        message = rig.one(f"c/Subscriptions/{name}")
        rig.do(lambda message=message: message.dead_letter("Unreadable"))
    assert [(letter.body, letter.headers["DeadLetterReason"]) for letter in rig.bus.dead_letters("c")] == [
        ("torn", "Unreadable")
    ] * 2
    assert rig.counts(GROUP)[4] == 1  # A look removes nothing.


def test_pop_takes_the_next_for_good(file_rig: Rig) -> None:
    file_rig.create_channel("c", persistent=True)
    file_rig.create_subscription("c", "g")
    assert file_rig.bus.pop("c") is None
    file_rig.publish("c", "late", 200)
    file_rig.publish("c", "soon", 1)
    popped: Any = file_rig.bus.pop("c")
    assert (popped.body, popped.channel) == ("soon", "c")
    file_rig.reopen()
    file_rig.create_channel("c", persistent=True)
    assert file_rig.bus.pop("c").body == "late"
    assert file_rig.bus.pop("c") is None
    assert file_rig.bus.pop("unknown") is None


def test_what_is_kept_for_the_first_group_is_not_popped_past_it(rig: Rig) -> None:
    rig.create_channel("c", persistent=True)
    rig.publish("c", 1)
    with pytest.raises(UsageError, match="no consumer group"):
        rig.bus.pop("c")
    rig.create_subscription("c", "g")
    assert rig.bus.pop("c").body == 1


# Those who only listen


class HeldJournal(BreakingJournal):
    """A disk that takes its time: a write ends when the test lets it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.entered = threading.Event()
        self.free = threading.Event()
        self.free.set()

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        self.entered.set()
        assert self.free.wait(GUARD_S)
        super().append(first_seq, changes, sync, part)


@pytest.mark.parametrize("dispatch", ["pool", "inline"])
def test_what_is_not_written_is_not_heard(tmp_path: Path, dispatch: str) -> None:
    journal = HeldJournal(tmp_path / "bus.db")
    bus = SyncMessageBus().with_persistence(EmbeddedStore(journal, SYSTEM_CLOCK, NoTimers()))
    assert isinstance(bus, SyncMessageBus)
    bus.create_channel("c", persistent=True)
    live = Collector()
    bus.subscribe("*", live, match="wildcard", dispatch=dispatch)
    bus.publish("c", "written")
    assert live.wait(1) == ["written"]
    journal.entered.clear()
    journal.free.clear()
    publisher = Publisher(lambda: bus.publish("c", "slow"))
    assert journal.entered.wait(GUARD_S)
    assert not bus.drain(0.01)  # One group has not received it yet, and it is not lost.
    assert live.bodies == ["written"]
    journal.free.set()
    publisher.join()
    assert live.wait(2) == ["written", "slow"]
    journal.broken = True
    with pytest.raises(StoreFailed):
        bus.publish("c", "unknown")
    assert bus.drain(GUARD_S)
    assert live.bodies == ["written", "slow"]
    bus.close(0.2)


@pytest.mark.immediate
def test_listeners_hear_in_the_order_of_the_store(store_path: Path | None) -> None:
    rig = Rig(SyncMessageBus, store_path)
    rig.create_channel("c", persistent=True, max_queue_size=0)
    live = Collector()
    rig.subscribe("*", live, match="wildcard")
    rig.create_subscription("c", "g")
    run_together(4, lambda number: [rig.publish("c", f"{number}/{body}") for body in range(50)])
    assert rig.drain(GUARD_S)
    stored = [message.body for message in rig.peek(GROUP, 500)]
    assert live.bodies == stored
    assert len(stored) == 200
    assert rig.bus.metrics("c")["published"] == 200
    rig.end()


def test_a_listener_may_publish_and_wait_for_the_store_itself(rig: Rig) -> None:
    rig.create_channel("c", persistent=True)
    rig.create_channel("d", persistent=True)

    def relay(message: Message) -> None:
        rig.bus.send("log", message.body)
        if isinstance(rig.bus, SyncMessageBus):
            rig.bus.publish("d", message.body)
        else:
            rig.bus.publish_from_sync("d", message.body)

    rig.subscribe("c", relay, match="prefix", dispatch="inline")
    for body in range(5):
        rig.publish("c", body)
    assert rig.drain(GUARD_S)
    assert bodies(rig, "d") == list(range(5))


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
def test_a_listeners_error_hurts_neither_the_publish_nor_the_others(rig: Rig, error: type[BaseException]) -> None:
    rig.create_channel("c", persistent=True)
    live = Collector()

    def broken(message: Message) -> bool:
        raise error

    rig.subscribe("c", Collector(), match="prefix", group="filter", filter=broken if error is ValueError else None)
    rig.subscribe("c", broken, match="prefix", group="inline", dispatch="inline", retry_attempts=0)
    rig.subscribe("c", live, match="prefix", group="live")
    for body in range(3):
        rig.publish("c", body)
    assert live.wait(3) == [0, 1, 2]
    assert rig.drain(GUARD_S)
    assert rig.counts("c")[0] == 3


async def test_nobody_has_to_await_a_publish_for_it_to_be_heard(queue_bus: MessageBus) -> None:
    if queue_bus._durable is None:
        queue_bus.with_persistence("memory://")
    queue_bus.create_channel("c", persistent=True)
    live = Collector()
    queue_bus.subscribe("c", live, match="prefix")
    for body in range(3):
        queue_bus.publish_from_sync("c", body)
    assert await queue_bus.drain(GUARD_S)
    assert live.bodies == [0, 1, 2]


@pytest.mark.immediate
def test_a_publisher_in_line_waits_through_a_full_disk(file_rig: Rig) -> None:
    """Free places on the channel are of no use while the disk is full; the publisher is not rejected for that."""
    full(file_rig, drop_policy="block")
    publisher = stand_in_line(file_rig, "later")
    reserve = file_rig.bus._runtime.queues().store._journal.reserve
    reserve.enter()
    with pytest.raises(StoreFull):
        file_rig.create_channel("other", persistent=True)
    file_rig.do(file_rig.one(GROUP).complete)
    assert in_line(file_rig) == 1
    assert publisher.is_waiting
    assert reserve.refill()
    file_rig.bus._durable._publishing._publish_queues["c"].advance()  # As it does once per second.
    publisher.join()
    assert publisher.error is None
    assert bodies(file_rig) == [1, "later"]


# Other settings


def update(rig: Rig, **settings: object) -> None:
    rig.create_channel("c", persistent=True, update=True, **{"drop_policy": "block", **settings})


@pytest.mark.parametrize("settings", [{"max_queue_size": 2}, {"max_queue_size": 4, "drop_policy": "drop_new"}])
def test_new_settings_refuse_a_publisher_that_they_leave_no_place(rig: Rig, settings: dict[str, object]) -> None:
    full(rig, 4, drop_policy="block")
    many = stand_in_line(rig, publish=lambda: rig.publish_many("c", [1, 2, 3]))
    update(rig, **settings)
    many.join()
    assert isinstance(many.error, QueueFull)
    assert in_line(rig) == 0


@pytest.mark.immediate
def test_a_new_bound_holds_at_once_though_publishers_wait(rig: Rig) -> None:
    full(rig, 6, drop_policy="block")
    for _ in range(3):
        rig.pop("c")
    many = stand_in_line(rig, publish=lambda: rig.publish_many("c", [1, 2, 3, 4]))
    update(rig, max_queue_size=4, block_timeout=0.01)
    queue = rig.bus._durable._publishing._publish_queues["c"]
    queue.refuse(queue._waiting[0])
    many.join()
    rig.publish("c", 5)
    with pytest.raises(QueueFull):
        rig.publish("c", 6)
    assert len(bodies(rig)) == 4


def test_a_larger_bound_is_used_at_once(rig: Rig) -> None:
    full(rig, 2, drop_policy="block")
    publisher = stand_in_line(rig, "waits")
    update(rig, max_queue_size=3)
    assert in_line(rig) == 0
    publisher.join()
    assert publisher.error is None


def test_ctrl_c_in_the_thread_that_admits_stops_no_other_publisher(rig: Rig) -> None:
    full(rig, 2, drop_policy="block")
    first, second = stand_in_line(rig, "first"), stand_in_line(rig, "second")
    queue = rig.bus._durable._publishing._publish_queues["c"]

    def interrupted() -> None:
        raise KeyboardInterrupt

    queue._waiting[0].admit = interrupted
    with pytest.raises(KeyboardInterrupt):
        queue.advance()
    first.join()
    assert isinstance(first.error, StoreFailed)  # It may be stored, or not.
    rig.pop("c")
    second.join()
    assert second.error is None
