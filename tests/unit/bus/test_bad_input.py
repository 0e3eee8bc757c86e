"""Bad input: a named error with a hint, counted by kind, and nothing lost."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.bus.probes import Collector
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.settings import BusConfig, ChannelConfig
from unibus.core.envelope.message import Message
from unibus.core.envelope.payload import Payload
from unibus.errors import (
    BusError,
    ChannelNotFound,
    ConfigInvalid,
    HandlerInvalid,
    MessageTooLarge,
    NameInvalid,
    PriorityInvalid,
    PublishError,
    SerializationFailed,
    UsageError,
)
from unibus.limits import BODY_BYTES_MAX, CHANNEL_NAME_BYTES_MAX


def outcome(bus: SyncMessageBus, kind: str) -> int:
    return sum(channel.outcomes[kind] for channel in bus.snapshot().channels)


# Strictness


def test_a_strict_bus_refuses_unknown_channels() -> None:
    with SyncMessageBus(strict=True) as bus:
        for call in (
            lambda: bus.publish("c"),
            lambda: bus.publish_many("c", [1]),
            lambda: bus.publish(Message.new("c")),
            lambda: bus.subscribe("c", Collector()),
        ):
            with pytest.raises(ChannelNotFound) as caught:
                call()
            assert "create_channel" in caught.value.hint
            assert isinstance(caught.value, (PublishError, LookupError))
        assert bus.channels() == []
        bus.create_channel("c")
        got = Collector()
        bus.subscribe("c", got)
        bus.publish("c", 1)
        assert got.wait(1) == [1]


def test_a_refused_subscribe_is_not_counted_as_a_publish() -> None:
    # Outcomes are those of publish.
    with SyncMessageBus(strict=True) as bus:
        with pytest.raises(ChannelNotFound):
            bus.subscribe("c", Collector())
        assert outcome(bus, "not_found") == 0
        with pytest.raises(ChannelNotFound):
            bus.publish("c")
        assert outcome(bus, "not_found") == 1


def test_a_strict_bus_may_subscribe_to_patterns() -> None:
    with SyncMessageBus(strict=True) as bus:
        got = Collector()
        bus.subscribe("c", got, match="prefix")
        bus.create_channel("c1")
        bus.publish("c1", 1)
        assert got.wait(1) == [1]


# Publish


@pytest.mark.parametrize("priority", [-1, 256, 10**30, True, 1.5, "high", math.nan, b"1", [1]])
def test_a_priority_out_of_range_is_refused_and_counted(sync_bus: SyncMessageBus, priority: object) -> None:
    # In the compiled package a parameter of a narrower type would raise TypeError before it is counted.
    sync_bus.create_channel("c")
    publishes: list[Callable[[], object]] = [
        lambda: sync_bus.publish("c", 1, priority),
        lambda: sync_bus.publish_many("c", [1], priority),
        lambda: sync_bus.publish_json("c", 1, priority),
        lambda: sync_bus.publish_from_sync("c", 1, priority),
    ]
    for count, publish in enumerate(publishes, 1):
        with pytest.raises(PriorityInvalid) as caught:
            publish()
        assert "0" in caught.value.hint
        assert outcome(sync_bus, "invalid") == count
    assert sync_bus.queue_size("c") == 0
    with pytest.raises(PriorityInvalid):
        Message.new("c", 1, priority)
    with pytest.raises(PriorityInvalid):
        sync_bus.send("q", 1, priority=priority)
    with pytest.raises((PriorityInvalid, TypeError)):
        ChannelConfig(default_priority=priority)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["trace_id", "correlation_id", "dedup_key"])
async def test_a_text_that_is_none_is_refused(sync_bus: SyncMessageBus, name: str) -> None:
    given: dict[str, Any] = {name: 3}
    async with MessageBus() as bus:
        publishes: list[Callable[..., object]] = [
            sync_bus.publish,
            sync_bus.publish_from_sync,
            bus.publish,
            bus.publish_from_sync,
        ]
        for publish in publishes:
            with pytest.raises(UsageError) as caught:
                publish("c", 1, **given)
            assert name in caught.value.what


@pytest.mark.parametrize("priority", ["high", 1.5, True, 10**30])
async def test_an_async_publish_refuses_it_too(priority: object) -> None:
    async with MessageBus() as bus:
        bus.create_channel("c")
        publishes: list[Callable[[], object]] = [
            lambda: bus.publish("c", 1, priority),
            lambda: bus.publish_many("c", [1], priority),
            lambda: bus.publish_json("c", 1, priority),
            lambda: bus.publish_from_sync("c", 1, priority),
        ]
        for publish in publishes:
            with pytest.raises(PriorityInvalid):
                publish()


@pytest.mark.parametrize(
    "body",
    [
        bytes(BODY_BYTES_MAX + 1),
        "x" * (BODY_BYTES_MAX + 1),
        bytearray(BODY_BYTES_MAX + 1),
        Payload.bytes(bytes(BODY_BYTES_MAX + 1)),
        memoryview(bytearray(BODY_BYTES_MAX + 1)),
        memoryview(bytearray(BODY_BYTES_MAX + 8)).cast("d"),
        memoryview(bytearray(BODY_BYTES_MAX + 8)).cast("B", [2, BODY_BYTES_MAX // 2 + 4]),
        Payload.bytes(memoryview(bytearray(BODY_BYTES_MAX + 8)).cast("q")),
    ],
    ids=["bytes", "text", "bytearray", "payload", "view", "view of floats", "view in rows", "payload of a view"],
)
def test_a_body_over_the_limit_is_refused_and_counted(sync_bus: SyncMessageBus, body: object) -> None:
    sync_bus.create_channel("c")
    with pytest.raises(MessageTooLarge) as caught:
        sync_bus.publish("c", body)
    assert caught.value.hint
    with pytest.raises(MessageTooLarge):
        sync_bus.publish(Message.new("c", body))
    with pytest.raises(MessageTooLarge):
        sync_bus.publish_many("c", [1, body])
    assert sync_bus.queue_size("c") == 0
    assert outcome(sync_bus, "too_large") >= 3


def test_a_view_over_the_limit_is_not_sent(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_queue("q")
    with pytest.raises(MessageTooLarge):
        sync_bus.send("q", memoryview(bytearray(BODY_BYTES_MAX + 8)).cast("d"))


def test_a_view_within_the_limit_is_taken_and_one_that_was_released_is_refused(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    view = memoryview(bytearray(16)).cast("B", [2, 8])
    sync_bus.publish("c", view)
    assert sync_bus.queue_size("c") == 1
    view.release()
    with pytest.raises(SerializationFailed):
        sync_bus.publish("c", view)
    assert outcome(sync_bus, "serialization_failed") == 1


def test_text_is_measured_in_bytes(sync_bus: SyncMessageBus) -> None:
    # The limit is BODY_BYTES_MAX; a text of wide characters has more bytes than characters.
    sync_bus.create_channel("c")
    with pytest.raises(MessageTooLarge):
        sync_bus.publish("c", "é" * (BODY_BYTES_MAX // 2 + 1))


def test_a_body_at_the_limit_is_taken(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    sync_bus.publish("c", bytes(BODY_BYTES_MAX))
    assert sync_bus.queue_size("c") == 1


def test_what_json_cannot_express_is_counted_by_its_kind(sync_bus: SyncMessageBus) -> None:
    # Every outcome of publish is counted once by kind.
    sync_bus.create_channel("c")
    with pytest.raises(SerializationFailed):
        sync_bus.publish_json("c", object())
    assert outcome(sync_bus, "serialization_failed") == 1


def test_a_field_that_does_not_exist_is_counted_as_invalid(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    with pytest.raises(UsageError):
        sync_bus.publish("c", 1, fields={"no_such_field": 1})
    assert outcome(sync_bus, "invalid") == 1


def test_many_that_are_refused_are_counted_each(sync_bus: SyncMessageBus) -> None:
    # As many outcomes as messages, accepted or not.
    sync_bus.create_channel("c", max_queue_size=2)
    sync_bus.publish_many("c", [1, 2])
    with pytest.raises(PublishError):
        sync_bus.publish_many("c", [3, 4, 5])
    assert outcome(sync_bus, "accepted") == 2
    assert outcome(sync_bus, "queue_full") == 3
    assert sync_bus.metrics("c")["dropped"] == 3


@pytest.mark.parametrize(
    "name", ["", "x" * (CHANNEL_NAME_BYTES_MAX + 1), "é" * 131, "a\nb", "a\x00", "\ud800", "\u202e"]
)
def test_a_name_that_cannot_be_is_refused_everywhere(sync_bus: SyncMessageBus, name: str) -> None:
    for call in (
        lambda: sync_bus.publish(name),
        lambda: sync_bus.publish_many(name, [1]),
        lambda: sync_bus.create_channel(name),
        lambda: sync_bus.subscribe(name, Collector()),
        lambda: sync_bus.publish(Message.new(name)),
    ):
        with pytest.raises(NameInvalid):
            call()
    assert sync_bus.channels() == []


def test_the_longest_name_is_fine(sync_bus: SyncMessageBus) -> None:
    name = "é" * (CHANNEL_NAME_BYTES_MAX // 2)
    got = Collector()
    sync_bus.subscribe(name, got)
    sync_bus.publish(name, 1)
    assert got.wait(1) == [1]


@pytest.mark.parametrize("name", [None, 5, b"c", ["c"], object()])
def test_a_name_that_is_no_text_is_refused(sync_bus: SyncMessageBus, name: object) -> None:
    with pytest.raises((UsageError, TypeError)):
        sync_bus.publish(name)
    with pytest.raises((UsageError, TypeError)):
        sync_bus.create_channel(name)  # type: ignore[arg-type]
    if not isinstance(name, bytes):
        with pytest.raises((UsageError, TypeError)):
            sync_bus.subscribe(name, Collector())  # type: ignore[arg-type]
    assert sync_bus.channels() == []


@pytest.mark.parametrize(
    "fields",
    [{"ttl": 0}, {"ttl": -1}, {"ttl": "soon"}, {"headers": {"a": object()}}, {"headers": 5}, {"correlation_id": 5}],
)
def test_a_field_of_the_wrong_kind_is_refused(sync_bus: SyncMessageBus, fields: dict[str, object]) -> None:
    sync_bus.create_channel("c")
    with pytest.raises((UsageError, TypeError)):  # Compiled, the parameter's own type says no first.
        sync_bus.publish("c", 1, **fields)
    assert sync_bus.queue_size("c") == 0


def test_publish_errors_are_runtime_errors() -> None:
    assert issubclass(PublishError, RuntimeError)
    for kind in (MessageTooLarge, SerializationFailed, ChannelNotFound):
        assert issubclass(kind, PublishError)
        assert kind.code != BusError.code


# Subscribe


@pytest.mark.parametrize("handler", [5, object(), [1], b"x"])
def test_a_handler_that_cannot_be_called_is_refused(sync_bus: SyncMessageBus, handler: object) -> None:
    with pytest.raises((HandlerInvalid, TypeError)) as caught:
        sync_bus.subscribe("c", handler)  # type: ignore[arg-type]
    if isinstance(caught.value, HandlerInvalid):
        assert caught.value.hint
    with pytest.raises(HandlerInvalid) as caught_decorating:
        sync_bus.subscribe("c")(handler)  # type: ignore[operator]
    assert caught_decorating.value.hint
    assert sync_bus.channels() == []


def test_a_module_name_without_a_callback_is_refused(sync_bus: SyncMessageBus) -> None:
    with pytest.raises(HandlerInvalid) as caught:
        sync_bus.subscribe("c", "module")
    assert caught.value.hint
    assert sync_bus.channels() == []


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": -1},
        {"retry_attempts": -1},
        {"retry_attempts": True},
        {"retry_delay": -0.1},
        {"retry_delay": math.inf},
        {"retry_delay": math.nan},
        {"retry_backoff": 0.5},
        {"retry_jitter": 2.0},
        {"dispatch": "elsewhere"},
        {"overflow": "drop_newest"},
        {"overflow": "drop_oldest", "queue_size": 0},
        {"requeue": "middle"},
        {"match": "regex"},
        {"filter": 5},
        {"no_such_option": 1},
    ],
)
def test_an_option_out_of_its_range_is_refused_and_changes_nothing(
    sync_bus: SyncMessageBus, options: dict[str, object]
) -> None:
    with pytest.raises(UsageError):
        sync_bus.subscribe("c", Collector(), **options)  # type: ignore[arg-type]
    assert sync_bus.channels() == []
    sync_bus.publish("c")
    assert outcome(sync_bus, "unrouted") == 1


@pytest.mark.parametrize("options", [{"concurrency": "two"}, {"retry_attempts": "three"}, {"retry_delay": "soon"}])
def test_an_option_of_the_wrong_type_is_refused(sync_bus: SyncMessageBus, options: dict[str, object]) -> None:
    with pytest.raises((UsageError, TypeError)):
        sync_bus.subscribe("c", Collector(), **options)  # type: ignore[arg-type]
    assert sync_bus.channels() == []


def test_an_async_handler_cannot_be_inline(sync_bus: SyncMessageBus) -> None:
    async def handler(message: Message) -> None: ...

    with pytest.raises(HandlerInvalid) as caught:
        sync_bus.subscribe("c", handler, dispatch="inline")
    assert caught.value.hint


# Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_queue_size", -1),
        ("max_queue_size", 1.5),
        ("max_queue_size", True),
        ("max_queue_size", "many"),
        ("drop_policy", "drop_all"),
        ("rate_limit_burst", 5),
        ("ttl", 0),
        ("ttl", -1),
        ("ttl", "long"),
        ("block_timeout", -1),
        ("no_such_setting", 1),
    ],
)
def test_a_channel_setting_out_of_its_range_is_refused(sync_bus: SyncMessageBus, name: str, value: object) -> None:
    with pytest.raises(UsageError):
        sync_bus.create_channel("c", **{name: value})
    assert sync_bus.channels() == []


@pytest.mark.parametrize("count", [0, -1, 1_025, 1.5])
def test_a_worker_count_out_of_its_range_is_refused(count: object) -> None:
    with pytest.raises((ConfigInvalid, TypeError)):
        SyncMessageBus(worker_count=count)  # type: ignore[arg-type]
    with pytest.raises((ConfigInvalid, TypeError)):
        BusConfig(worker_count=count)  # type: ignore[arg-type]


async def test_the_async_face_refuses_in_the_same_way(async_bus: MessageBus) -> None:
    with pytest.raises(PriorityInvalid):
        await async_bus.publish("c", 1, 256)
    with pytest.raises(NameInvalid):
        await async_bus.publish("")
    with pytest.raises(NameInvalid):
        async_bus.publish_from_sync("")
    with pytest.raises(MessageTooLarge):
        await async_bus.publish("c", bytes(BODY_BYTES_MAX + 1))
    with pytest.raises(SerializationFailed):
        await async_bus.publish_json("c", object())


# Likely mistakes of people who know other libraries


@pytest.mark.parametrize("bus_type", [SyncMessageBus, MessageBus])
def test_a_delay_of_publish_is_refused_with_a_hint_to_send(bus_type: type[SyncMessageBus] | type[MessageBus]) -> None:
    bus: Any = bus_type()
    calls: list[Callable[[], object]] = [
        lambda: bus.publish("c", 1, delay=5),
        lambda: bus.publish_from_sync("c", 1, delay=5),
        lambda: bus.publish("c", 1, fields={"delay": 5}),
        lambda: bus.publish_many("c", [1], delay=5),
        lambda: bus.request("c", 1, delay=5),
    ]
    for count, call in enumerate(calls, 1):
        with pytest.raises(UsageError, match=r"use send\(queue, payload, delay=…\)"):
            call()
        assert sum(bus._exchange.refused.outcomes().values()) == count
    assert bus.metrics()["published"] == 0


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("delai", "did you mean 'delay'?"),
        ("prority", "did you mean 'priority'?"),
        ("mesage_id", "did you mean 'message_id'?"),
        ("zebra", "see Message"),
    ],
)
def test_a_misspelt_keyword_of_send_gets_a_hint(sync_bus: SyncMessageBus, name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        sync_bus.send("q", 1, **{name: 1})
    assert caught.value.hint == hint


def test_what_is_no_field_is_not_proposed_as_one(sync_bus: SyncMessageBus) -> None:
    with pytest.raises(UsageError) as caught:
        sync_bus.publish("c", 1, fields={"priority": 1})
    assert caught.value.hint == "send and publish take it as an argument of its own"


@pytest.mark.parametrize(("name", "meant"), [("drop_polcy", "drop_policy"), ("max_size", "max_queue_size")])
def test_a_misspelt_setting_of_a_channel_gets_a_hint(sync_bus: SyncMessageBus, name: str, meant: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        sync_bus.create_channel("c", **{name: 1})
    assert caught.value.hint == f"did you mean {meant!r}?"
    assert sync_bus.channels() == []


def test_a_misspelt_option_of_a_store_gets_a_hint() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        SyncMessageBus("sqlite:///never-made.db?durabilty=D2")
    assert caught.value.hint == "did you mean 'durability'?"


def handle(message: Message) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ((handle, "orders"), "swap the arguments: subscribe('orders', handle)"),
        ((handle, handle), 'swap the arguments: subscribe("channel", handle)'),
        ((handle,), 'pass the channel: subscribe("channel", handle), or @bus.subscribe("channel")'),
    ],
)
def test_a_handler_in_the_place_of_the_channel_is_refused(
    sync_bus: SyncMessageBus, arguments: tuple[Any, ...], hint: str
) -> None:
    with pytest.raises(HandlerInvalid) as caught:
        sync_bus.subscribe(*arguments)
    assert caught.value.hint == hint
    assert sync_bus.channels() == []
