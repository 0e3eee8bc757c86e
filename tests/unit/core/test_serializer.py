"""One interface over the encodings, for parts that let their user choose one."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import unibus
from tests.same_message import same_message
from unibus.core.codec.codec import encode, encode_json
from unibus.core.codec.serializer import MessageSerializer, SerializerType, create_serializer
from unibus.core.envelope.message import Message
from unibus.errors import DecodeError, SerializationFailed, UsageError

BOTH = pytest.mark.parametrize("type", [SerializerType.MSGPACK, SerializerType.JSON])


@BOTH
def test_what_was_serialized_comes_back(type: SerializerType) -> None:
    serializer = create_serializer(type)
    message = Message.new("c", {"n": 1}).with_fields({"correlation_id": "x", "source": "s", "headers": {"b": b"\x00"}})
    assert same_message(serializer.deserialize(serializer.serialize(message)), message)


def test_the_interface_is_exported() -> None:
    assert unibus.create_serializer is create_serializer
    assert unibus.MessageSerializer is MessageSerializer
    serializer: unibus.MessageSerializer = unibus.create_serializer("json")
    assert serializer.deserialize(serializer.serialize(Message.new("orders", [1]))).body == [1]


def test_msgpack_is_the_default() -> None:
    message = Message.new("c", {"n": 1})
    assert create_serializer().serialize(message) == encode(message)
    assert create_serializer(SerializerType.JSON).serialize(message) == encode_json(message)


@pytest.mark.parametrize("name", ["msgpack", "JSON"])
def test_a_type_has_a_name(name: str) -> None:
    message = Message.new("c")
    assert create_serializer(name).deserialize(create_serializer(name).serialize(message)).id == message.id


@pytest.mark.parametrize("type", [SerializerType.RKYV, SerializerType.BINCODE, "rkyv", "Bincode"])
def test_formats_of_rust_are_refused_with_the_way_out(type: SerializerType | str) -> None:
    with pytest.raises(UsageError) as refused:
        create_serializer(type)
    assert "'msgpack'" in refused.value.hint


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match="pickle"):
        create_serializer("pickle")


@BOTH
def test_errors_are_named(type: SerializerType) -> None:
    serializer = create_serializer(type)
    with pytest.raises(SerializationFailed):
        serializer.serialize(Message.new("c", object()))
    with pytest.raises(DecodeError):
        serializer.deserialize(b"nonsense")


@BOTH
def test_threads_may_share_one(type: SerializerType) -> None:
    serializer = create_serializer(type)
    messages = [Message.new(f"c{n}", {"n": n}).with_headers({"n": n}) for n in range(200)]

    def both_ways(message: Message) -> Message:
        return serializer.deserialize(serializer.serialize(message))

    with ThreadPoolExecutor(4) as pool:
        for message, back in zip(messages, pool.map(both_ways, messages), strict=True):
            assert same_message(back, message)
