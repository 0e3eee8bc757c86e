"""Persistent channels: each group gets every message, keeps its position, and begins where `start` says."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, HandClock, HandTimers
from tests.unit.bus.rigs import Rig
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.settings import ChannelConfig
from unibus.core.envelope.message import Message
from unibus.errors import (
    BusClosed,
    ChannelExists,
    ConfigInvalid,
    EntityExists,
    HandlerInvalid,
    NameInvalid,
    QuotaExceeded,
    RateLimited,
    RequestFailed,
    RequestTimeout,
    StoreUnavailable,
    UsageError,
)


@pytest.fixture
def channel_rig(rig: Rig) -> Rig:
    rig.create_channel("c", persistent=True)
    return rig


@pytest.fixture
def saved_rig(file_rig: Rig) -> Rig:
    file_rig.create_channel("c", persistent=True)
    return file_rig


def heard(rig: Rig, group: str, **options: object) -> list[object]:
    """Everything that a group gets until nothing is left for it. It leaves after that."""
    got = Collector()
    subscription = rig.subscribe("c", got, group=group, **options)
    assert rig.drain(GUARD_S)
    rig.unsubscribe(subscription)
    return got.bodies


# Groups


def test_each_group_gets_every_message(channel_rig: Rig) -> None:
    one, other = Collector(), Collector()
    channel_rig.subscribe("c", one, group="one")
    channel_rig.subscribe("c", other, group="other")
    message = channel_rig.publish("c", {"id": 1}, headers={"k": "v"}, priority=3)
    assert message.sequence == 1
    for got in (one, other):
        assert got.wait(1) == [{"id": 1}]
        received = got.messages[0]
        assert (received.id, received.channel, received.priority) == (message.id, "c", 3)
        assert (received.headers["k"], received.delivery_count) == ("v", 1)
    assert channel_rig.drain(GUARD_S)
    for group in ("one", "other"):
        assert channel_rig.counts(f"c/Subscriptions/{group}") == (0, 0, 0, 0, 0)


def test_consumers_of_one_group_compete(channel_rig: Rig) -> None:
    both = Collector()
    counted = [0, 0]

    def one(message: Message) -> None:
        counted[0] += 1
        both(message)

    def other(message: Message) -> None:
        counted[1] += 1
        both(message)

    channel_rig.subscribe("c", one, group="g", concurrency=2)
    channel_rig.subscribe("c", other, group="g", concurrency=2)
    channel_rig.publish_many("c", list(range(200)))
    assert channel_rig.drain(GUARD_S)
    assert sorted(both.bodies) == list(range(200))
    assert sum(counted) == 200


def test_async_handlers_run_on_a_loop_and_sync_ones_do_not(channel_rig: Rig) -> None:
    where: dict[str, object] = {}

    async def on_a_loop(message: Message) -> None:
        where["async"] = asyncio.get_running_loop()

    def in_the_pool(message: Message) -> None:
        where["sync"] = threading.current_thread().name

    channel_rig.subscribe("c", on_a_loop)
    channel_rig.subscribe("c", in_the_pool)
    channel_rig.publish("c", 1)
    assert channel_rig.drain(GUARD_S)
    if isinstance(channel_rig.bus, MessageBus):
        assert where["async"] is channel_rig.do(asyncio.get_running_loop)
    assert str(where["sync"]).startswith("unibus-")


def test_priorities_are_heeded(channel_rig: Rig) -> None:
    for body, priority in [("late", 200), ("soon", 1), ("later", 201)]:
        channel_rig.publish("c", body, priority)
    assert heard(channel_rig, "g") == ["soon", "late", "later"]


def test_messages_in_all_shapes(channel_rig: Rig) -> None:
    seen: list[object] = []

    def typed(body: dict[str, int], message: Message) -> None:
        seen.append((body, message.channel))

    channel_rig.subscribe("c", typed, group="g")
    channel_rig.publish("c", {"a": 1})
    channel_rig.publish_json("c", {"b": 2})
    channel_rig.publish(Message.new("c", {"c": 3}))
    assert channel_rig.drain(GUARD_S)
    assert seen == [({"a": 1}, "c"), ({"b": 2}, "c"), ({"c": 3}, "c")]


def test_the_default_group_is_the_handlers_name(channel_rig: Rig) -> None:
    subscription = channel_rig.subscribe("c", Collector())
    assert subscription.group.endswith("Collector")
    with pytest.raises(ConfigInvalid):
        channel_rig.subscribe("c", Collector())  # Another one that would share its messages unknowingly.
    with pytest.raises(HandlerInvalid):
        channel_rig.subscribe("c", lambda message: None)
    channel_rig.subscribe("c", lambda message: None, group="named")


@pytest.mark.parametrize(
    "options",
    [
        {"dispatch": "inline"},
        {"requeue": "back"},
        {"queue_size": 5},
        {"start": "middle"},
        {"start": -1},
        {"start": True},
    ],
    ids=str,
)
def test_what_a_persistent_channel_cannot_do_is_refused(channel_rig: Rig, options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        channel_rig.subscribe("c", Collector(), group="g", **options)


@pytest.mark.parametrize("group", ["a/b", "$x"])
def test_a_group_has_a_name_that_a_path_can_hold(channel_rig: Rig, group: str) -> None:
    with pytest.raises(NameInvalid):
        channel_rig.subscribe("c", Collector(), group=group)


@pytest.mark.parametrize("option", [{"start": "beginning"}, {"idempotent": True}], ids=str)
def test_options_of_persistent_channels_are_for_those(rig: Rig, option: dict[str, object]) -> None:
    with pytest.raises(ConfigInvalid):
        rig.subscribe("plain", Collector(), **option)


# Its place


def test_a_group_keeps_its_place_while_nobody_listens(channel_rig: Rig) -> None:
    assert heard(channel_rig, "g") == []
    channel_rig.publish_many("c", [1, 2])
    assert heard(channel_rig, "g") == [1, 2]
    channel_rig.publish("c", 3)
    assert heard(channel_rig, "g") == [3]
    assert heard(channel_rig, "g") == []


def test_a_group_keeps_its_place_across_a_restart(saved_rig: Rig) -> None:
    saved_rig.publish("c", 1)
    assert heard(saved_rig, "g") == [1]
    saved_rig.publish_many("c", [2, 3])
    saved_rig.reopen()
    saved_rig.create_channel("c", persistent=True)
    assert heard(saved_rig, "g") == [2, 3]
    saved_rig.reopen()
    saved_rig.create_channel("c", persistent=True)
    assert heard(saved_rig, "g") == []


def test_a_created_channel_keeps_what_comes_before_its_first_group(channel_rig: Rig) -> None:
    channel_rig.publish_many("c", [1, 2])
    assert channel_rig.counts("c")[0] == 2
    assert heard(channel_rig, "first") == [1, 2]
    assert channel_rig.counts("c")[0] == 0
    assert heard(channel_rig, "second") == []  # A new group begins at the end, unless it says otherwise.
    assert heard(channel_rig, "third", start="beginning") == [1, 2]


def test_a_new_group_begins_where_it_is_told_to(channel_rig: Rig) -> None:
    channel_rig.publish_many("c", [1, 2, 3])
    assert heard(channel_rig, "beginning", start="beginning") == [1, 2, 3]
    assert heard(channel_rig, "end", start="end") == []
    assert heard(channel_rig, "sequence", start=1) == [2, 3]
    assert heard(channel_rig, "all", start=0) == [1, 2, 3]
    assert heard(channel_rig, "future", start=99) == []
    channel_rig.publish("c", 4)
    assert heard(channel_rig, "end", start="beginning") == [4]  # It has its place already.


def test_a_new_group_may_begin_at_an_instant(timed_rig: Rig, hand_clock: HandClock) -> None:
    timed_rig.create_channel("c", persistent=True)
    heard(timed_rig, "first")  # Else the first one would get what was kept, wherever it begins.
    timed_rig.publish("c", "before")
    hand_clock.advance(10)
    instant = datetime.fromtimestamp(hand_clock.wall / 1e9, UTC)
    timed_rig.publish("c", "then")
    hand_clock.advance(10)
    timed_rig.publish("c", "after")
    assert heard(timed_rig, "g", start=instant) == ["then", "after"]
    assert heard(timed_rig, "h", start=instant - timedelta(hours=1)) == ["before", "then", "after"]
    assert heard(timed_rig, "i", start=instant + timedelta(hours=1)) == []
    with pytest.raises(UsageError):
        timed_rig.subscribe("c", Collector(), group="j", start=instant.replace(tzinfo=None))


def test_what_was_kept_waits_across_a_restart(saved_rig: Rig) -> None:
    saved_rig.publish_many("c", [1, 2])
    saved_rig.reopen()
    assert saved_rig.counts("c")[0] == 2
    saved_rig.create_channel("c", persistent=True)
    assert heard(saved_rig, "g") == [1, 2]


def test_a_new_group_after_a_restart_finds_the_past(saved_rig: Rig) -> None:
    saved_rig.publish_many("c", [1, 2, 3])
    assert heard(saved_rig, "old") == [1, 2, 3]
    saved_rig.reopen()
    saved_rig.create_channel("c", persistent=True)
    assert heard(saved_rig, "new", start=1) == [2, 3]


# Idempotent groups


def test_an_idempotent_group_handles_a_message_once(saved_rig: Rig) -> None:
    message = Message.new("c", "x")
    for _ in range(3):
        saved_rig.publish(message.fresh())
    saved_rig.publish("c", "y")
    assert heard(saved_rig, "once", idempotent=True) == ["x", "y"]
    assert heard(saved_rig, "each", start="beginning") == ["x", "x", "x", "y"]
    saved_rig.publish(message.fresh())
    saved_rig.reopen()
    saved_rig.create_channel("c", persistent=True)
    assert heard(saved_rig, "once", idempotent=True) == []
    assert heard(saved_rig, "each") == ["x"]


def test_a_dedup_window_drops_what_is_published_again(rig: Rig) -> None:
    rig.create_channel("c", persistent=True, dedup_window=60)
    message = Message.new("c", "x")
    rig.publish(message.fresh())
    rig.publish(message.fresh())
    rig.publish("c", "y", dedup_key="k")
    rig.publish("c", "z", dedup_key="k")
    assert heard(rig, "g") == ["x", "y"]
    assert rig.bus.snapshot("c").channels[0].outcomes["duplicate"] == 2


# Publishing


def test_several_are_published_all_or_none(channel_rig: Rig) -> None:
    heard(channel_rig, "g")
    channel_rig.update_entity("c/Subscriptions/g", max_count=3)
    channel_rig.publish("c", 0)
    with pytest.raises(QuotaExceeded):
        channel_rig.publish_many("c", [1, 2, 3])
    assert [message.sequence for message in channel_rig.publish_many("c", [1, 2])] == [2, 3]
    assert channel_rig.publish_many("c", []) == []
    assert heard(channel_rig, "g") == [0, 1, 2]


@pytest.mark.immediate
def test_publish_from_sync_on_and_off_the_loop(saved_rig: Rig) -> None:
    saved_rig.publish_from_sync("c", "on")  # On the loop of the async face.
    saved_rig.bus.publish_from_sync("c", "off")
    saved_rig.reopen()
    saved_rig.create_channel("c", persistent=True)
    assert heard(saved_rig, "g") == ["on", "off"]


def test_a_rate_is_heeded_and_listeners_do_not_use_it_up(rig: Rig) -> None:
    rig.create_channel("c", persistent=True, rate_limit_per_sec=0.001, rate_limit_burst=4)
    live = Collector()
    rig.subscribe("*", live, match="wildcard")
    for number in range(4):
        rig.publish("c", number)
    with pytest.raises(RateLimited):
        rig.publish("c", 4)
    assert live.wait(4) == heard(rig, "g") == [0, 1, 2, 3]


def test_a_ttl_of_the_channel_ends_what_waits(timed_rig: Rig, hand_clock: HandClock) -> None:
    timed_rig.create_channel("c", persistent=True, ttl=5)
    heard(timed_rig, "g")
    timed_rig.publish("c", 1)
    timed_rig.publish_many("c", [2], ttl=100)
    hand_clock.advance(6)
    timed_rig.publish("c", 3)
    assert heard(timed_rig, "g") == [3]


def test_pattern_and_lossy_subscribers_hear_what_is_published(channel_rig: Rig) -> None:
    channel_rig.publish("c", "before")
    live, lossy, durable = Collector(), Collector(), Collector()
    channel_rig.subscribe("c", live, match="prefix")
    channel_rig.subscribe("c", lossy, overflow="drop_oldest", queue_size=10)
    channel_rig.subscribe("c", durable, group="g")
    channel_rig.publish("c", 1)
    channel_rig.publish_many("c", [2, 3])
    assert durable.wait(4) == ["before", 1, 2, 3]
    assert live.wait(3) == lossy.wait(3) == [1, 2, 3]
    assert channel_rig.bus.metrics("c")["published"] == 4


def test_what_the_store_keeps_is_not_kept_in_memory_too(channel_rig: Rig) -> None:
    channel_rig.publish_many("c", list(range(10)))
    assert channel_rig.bus.queue_size("c") == 10
    assert len(channel_rig.bus._exchange.channels["c"].kept) == 0
    assert channel_rig.bus.metrics("c")["published"] == 10
    late = Collector()
    channel_rig.subscribe("c", late, overflow="drop_oldest", queue_size=100)
    channel_rig.publish("c", "now")
    assert late.wait(1) == ["now"]


# Requests


def test_a_request_over_a_persistent_channel_is_answered(channel_rig: Rig) -> None:
    async def double(body: int) -> int:
        return body * 2

    channel_rig.subscribe("c", double, group="g")
    assert channel_rig.request("c", 21, timeout=GUARD_S) == 42


def test_a_request_waits_in_the_store_for_who_answers_it(channel_rig: Rig) -> None:
    with pytest.raises(RequestTimeout):
        channel_rig.request("c", 1, timeout=0.01)
    assert heard(channel_rig, "g") == [1]  # The request itself is not lost.


def test_who_returns_nothing_has_answered_too(channel_rig: Rig) -> None:
    channel_rig.subscribe("c", Collector(), group="g")
    assert channel_rig.request("c", 1, timeout=2) is None


def test_of_several_groups_the_one_that_returns_something_answers(channel_rig: Rig) -> None:
    def answer(body: int) -> str:
        return "here"

    channel_rig.subscribe("c", Collector(), group="silent")
    channel_rig.subscribe("c", answer, group="answers")
    for _ in range(20):
        assert channel_rig.request("c", 1, timeout=GUARD_S) == "here"


def test_a_request_that_fails_says_so(channel_rig: Rig) -> None:
    def broken(body: int) -> int:
        raise ValueError("no such number")

    channel_rig.subscribe("c", broken, group="g", retry_attempts=1, retry_delay=0)
    with pytest.raises(RequestFailed, match="no such number"):
        channel_rig.request("c", 1, timeout=GUARD_S)


def test_a_request_to_a_name_that_only_begins_like_one_is_told_at_once(rig: Rig) -> None:
    rig.create_channel("a/b", persistent=True)
    rig.subscribe("a/b", Collector(), group="g")
    with pytest.raises(RequestTimeout, match="no subscriber"):
        rig.request("a", 1, timeout=GUARD_S)


# Which channels are persistent


def test_with_a_persistence_path_only_those_that_say_so(file_rig: Rig) -> None:
    file_rig.create_channel("kept", persistent=True)
    file_rig.create_channel("plain")
    file_rig.publish("kept", 1)
    file_rig.publish("plain", 2)
    assert [info.name for info in file_rig.entities()] == ["kept"]
    assert file_rig.bus.queue_size("plain") == 1
    with pytest.raises(UsageError):
        type(file_rig.bus)("sqlite:///x.db", persistence_path="y.db")


@pytest.fixture
def url_rig(face: type, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(face, tmp_path / "unused.db")
    rig.close()
    rig.bus = rig.do(lambda: face(f"sqlite:///{tmp_path}/bus.db"))
    yield rig
    rig.end()


def test_on_a_durable_url_every_channel_is_unless_it_says_no(url_rig: Rig) -> None:
    url_rig.create_channel("plain", ChannelConfig(persistent=False))
    url_rig.publish("plain", 1)
    got = Collector()
    url_rig.subscribe("made", got, group="g")
    url_rig.publish("made", 2)
    assert got.wait(1) == [2]
    names = [info.name for info in url_rig.entities()]
    assert names == ["made", "made/Subscriptions/g"]
    plain = Collector()
    url_rig.subscribe("plain", plain)
    assert plain.wait(1) == [1]
    late = Collector()
    url_rig.subscribe("made", late, group="late")  # It was not created before: a new group begins now.
    url_rig.publish("made", 3)
    assert late.wait(1) == [3]


def test_a_channel_may_be_created_after_it_was_used(url_rig: Rig) -> None:
    url_rig.publish("c", 1)
    url_rig.create_channel("c", ttl=1_000)
    assert url_rig.info("c").settings["default_ttl"] == 1_000
    assert heard(url_rig, "g", start="beginning") == [1]


def test_other_settings_need_update(channel_rig: Rig) -> None:
    channel_rig.create_channel("c", persistent=True)
    for other in ({"persistent": False}, {"persistent": True, "ttl": 5.0}):
        with pytest.raises(ChannelExists):
            channel_rig.create_channel("c", **other)
    channel_rig.publish("c", 1)
    assert heard(channel_rig, "g") == [1]  # It is what it was.
    channel_rig.create_channel("c", persistent=True, ttl=5, update=True)
    channel_rig.create_channel("c", persistent=True, ttl=6, update=True)
    assert channel_rig.info("c").settings["default_ttl"] == 6


def test_a_queue_and_a_channel_cannot_share_a_name(rig: Rig) -> None:
    rig.send("q", 1)
    with pytest.raises(EntityExists):
        rig.create_channel("q", persistent=True)
    assert "q" not in rig.bus.channels()


def test_a_bus_in_memory_says_what_a_persistent_channel_needs(face: type) -> None:
    bus = face()
    with pytest.raises(StoreUnavailable) as caught:
        bus.create_channel("c", persistent=True)
    assert "sqlite" in caught.value.hint
    assert bus.channels() == []
    with pytest.raises(ConfigInvalid):
        bus.subscribe("c", Collector(), start="beginning")


def test_a_closed_bus_takes_no_subscription(channel_rig: Rig) -> None:
    channel_rig.close()
    with pytest.raises(BusClosed):
        channel_rig.subscribe("c", Collector(), group="g")


def test_persistence_may_be_added_once(tmp_path: Path, hand_timers: HandTimers) -> None:
    bus = SyncMessageBus()
    assert bus.with_persistence(tmp_path / "bus.db") is bus
    with pytest.raises(UsageError):
        bus.with_persistence(tmp_path / "other.db")
    bus.create_channel("c", persistent=True)
    bus.publish("c", 1)
    bus.close()
    assert (tmp_path / "bus.db").exists()
    assert not (tmp_path / "other.db").exists()


def nested() -> Callable[[Message], None]:
    def bill(message: Message) -> None:
        return None

    return bill


def groups_of(bus: SyncMessageBus) -> list[str]:
    return [info.name.rpartition("/")[2] for info in bus.entities() if "/Subscriptions/" in info.name]


def test_the_default_group_of_a_nested_function_is_readable_and_stable(tmp_path: Path) -> None:
    for _ in range(2):
        with SyncMessageBus(tmp_path / "bus.db") as bus:
            bus.subscribe("orders", nested())
            assert groups_of(bus) == [f"{__name__}.nested.bill"]


@pytest.mark.parametrize("module", [None, "shop"])
def test_a_store_with_the_former_default_group_continues_with_it(tmp_path: Path, module: str | None) -> None:
    """The former name had `<locals>` in it. Another group would leave its messages behind."""
    former = f"{__name__}.nested.<locals>.bill" if module is None else f"{module}.{__name__}.nested.<locals>.bill"
    seen: list[object] = []

    def nested() -> Callable[[Message], None]:
        def bill(message: Message) -> None:
            seen.append(message.body)

        bill.__qualname__ = "nested.<locals>.bill"
        return bill

    with SyncMessageBus(tmp_path / "bus.db") as bus:
        bus.subscribe("orders", lambda message: None, group=former).cancel()
        bus.publish("orders", 1)
    with SyncMessageBus(tmp_path / "bus.db") as bus:
        if module is None:
            bus.subscribe("orders", nested())
        else:
            bus.subscribe("orders", module, nested())
        bus.drain()
        assert groups_of(bus) == [former]
    assert seen == [1]


def test_a_module_and_a_nested_function_are_the_same_group_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with SyncMessageBus(tmp_path / "bus.db") as bus:
            bus.subscribe("orders", "shop", nested())
            assert groups_of(bus) == [f"shop.{__name__}.nested.bill"]


def test_a_sync_handler_that_returns_a_coroutine_has_failed(tmp_path: Path) -> None:
    """Its code never ran: a completed message would be lost."""

    async def work(message: Message) -> None:
        raise AssertionError("never awaited")

    with SyncMessageBus(tmp_path / "bus.db") as bus:
        bus.subscribe("orders", lambda message: work(message), group="g", retry_attempts=1, retry_delay=0.001)
        bus.publish("orders", 1)
        assert bus.drain(GUARD_S)
        (dead,) = bus.dead_letter_queue().list_messages()
        assert (dead.attempts, dead.error_type) == (2, "HandlerInvalid")
        assert bus.metrics("orders")["dispatched"] == 0
