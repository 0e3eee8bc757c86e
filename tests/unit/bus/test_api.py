"""Every public name of the API classes exists, with its parameters."""

import inspect

import pytest

import unibus
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.settings import ChannelConfig
from unibus.core.envelope.message import Message
from unibus.core.envelope.payload import Payload, SerializationFormat, Serialized
from unibus.core.envelope.priority import Priority
from unibus.core.envelope.views import BusMessage, MessageId, MessageMeta
from unibus.core.flow.metrics import MetricsSnapshot
from unibus.core.flow.queue import PriorityQueue

FACES = [MessageBus, SyncMessageBus]

# Name, then the parameters in the promised order; ours may have more after them or by keyword only.
METHODS = {
    "create_channel": ["name"],
    "publish": ["channel", "payload", "priority", "trace_id"],
    "publish_json": ["channel", "value"],
    "publish_many": ["channel", "payloads"],
    "publish_from_sync": ["channel", "payload"],
    "subscribe": ["channel", "handler", "retry_attempts", "retry_delay", "concurrency"],
    "unsubscribe": ["subscription"],
    "queue_size": ["channel"],
    "pop": ["channel"],
    "metrics": [],
    "start": ["worker_count"],
    "stop": [],
    "close": ["drain_timeout"],
    "with_persistence": [],
    "with_idempotency": ["ttl_seconds"],
    "request": ["channel", "payload"],
    "drain": [],
}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", METHODS)
def test_the_bus_has_the_method_with_the_seeds_parameters(face: type, name: str) -> None:
    parameters = [each for each in inspect.signature(getattr(face, name)).parameters if each != "self"]
    assert parameters[: len(METHODS[name])] == METHODS[name]


@pytest.mark.parametrize("face", FACES)
def test_the_defaults_of_subscribe_are_the_second_designs(face: type) -> None:
    parameters = inspect.signature(face.subscribe).parameters  # type: ignore[attr-defined]
    assert [parameters[name].default for name in ("retry_attempts", "retry_delay", "concurrency")] == [3, 0.1, 1]


@pytest.mark.parametrize("face", FACES)
def test_the_constructor_takes_the_first_designs_keywords(face: type) -> None:
    parameters = inspect.signature(face).parameters
    assert parameters["persistence_path"].default is None
    assert parameters["worker_count"].default == 4


def test_channel_settings_and_their_defaults() -> None:
    config = ChannelConfig()
    assert (config.max_queue_size, config.drop_policy) == (1000, "drop_new")
    assert config.persistent is None  # False on a bus without a durable URL.
    assert (config.rate_limit_per_sec, config.rate_limit_burst, config.dead_letter_channel) == (None, None, None)
    assert (config.ttl, config.default_priority) == (None, Priority.NORMAL)


def test_create_channel_takes_a_size_as_second_argument(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", 1)
    sync_bus.publish("c")
    with pytest.raises(unibus.QueueFull):
        sync_bus.publish("c")
    sync_bus.create_channel("d", max_queue_size=None)
    sync_bus.create_channel("d", 1000)


def test_the_public_names() -> None:
    for name in [
        "BusClosed",
        "BusMessage",
        "ChannelConfig",
        "ChannelNotFound",
        "Message",
        "MessageBus",
        "MessageId",
        "MessageMeta",
        "Payload",
        "Priority",
        "PublishError",
        "QueueFull",
        "RateLimited",
        "SerializationFailed",
        "SerializationFormat",
        "Subscription",
        "configure_message_bus",
        "get_message_bus",
        "setup_message_bus",
        "shutdown_message_bus",
    ]:
        assert hasattr(unibus, name)
        assert name in unibus.__all__
    assert set(unibus.__all__) <= set(dir(unibus))


def test_priorities() -> None:
    levels = [Priority.CRITICAL, Priority.HIGH, Priority.NORMAL, Priority.LOW, Priority.BACKGROUND]
    assert levels == [0, 25, 50, 75, 100]
    assert Message.new("c", 1).priority == Priority.NORMAL


def test_the_message_of_the_first_design() -> None:
    message = Message.new("c", {"a": 1})
    assert (message.channel, message.body, message.as_json()) == ("c", {"a": 1}, {"a": 1})
    assert message.id
    assert message.timestamp_ns > 0
    assert message.with_priority(0).priority == 0
    assert message.with_trace_id("t").trace_id == "t"
    assert message.with_trace_id("t").id == message.id


def test_payload_kinds() -> None:
    # Each kind of payload answers only for itself.
    assert Payload.json({"a": 1}).as_json() == {"a": 1}
    assert Payload.json({"a": 1}).as_bytes() is None
    assert Payload.bytes(b"x").as_bytes() == b"x"
    assert Payload.bytes(b"x").as_json() is None
    serialized = Payload.serialized(SerializationFormat.BINCODE, b"x")
    assert serialized.as_bytes() == b"x"
    assert isinstance(serialized.value, Serialized)
    assert {each.name for each in SerializationFormat} == {"RKYV", "BINCODE", "JSON", "MESSAGE_PACK"}


def test_the_queue_of_the_first_design() -> None:
    for name in ("push_with_priority", "push", "pop", "is_empty", "drain", "__len__"):
        assert hasattr(PriorityQueue, name)


def test_the_snapshot_of_the_first_design() -> None:
    for name in (
        "published",
        "dispatched",
        "dropped",
        "errors",
        "avg_publish_latency_us",
        "avg_dispatch_latency_us",
    ):
        assert name in MetricsSnapshot._fields


def test_message_id() -> None:
    one, two = MessageId.new(), MessageId.new()
    assert one != two
    assert MessageId.from_str(str(one)) == one
    assert hash(MessageId.from_str("x")) == hash(MessageId.from_str("x"))


def test_message_meta(sync_bus: SyncMessageBus) -> None:
    meta = MessageMeta(trace_id="t", correlation_id="c", source="s", custom={"a": "1"})
    assert (meta.trace_id, meta.correlation_id, meta.source, dict(meta.custom)) == ("t", "c", "s", {"a": "1"})


def test_bus_message() -> None:
    message = Message.new("topic", {"a": 1}, 5)
    view = BusMessage(message)
    assert (view.topic, view.priority, view.payload) == ("topic", 5, {"a": 1})
    assert view.correlation_id
    assert view.enqueued_time == pytest.approx(message.timestamp_ns / 1e9)
    assert view.sort_key[0] == 5
    assert (view.delivery_attempts, view.backend_id) == (0, None)


def test_with_idempotency_gives_the_bus_back(sync_bus: SyncMessageBus) -> None:
    # A builder, and whole seconds are fine.
    assert sync_bus.with_idempotency(60) is sync_bus
