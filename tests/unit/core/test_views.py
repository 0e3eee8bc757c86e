"""The views of the envelope under other names."""

import pytest

from unibus.core.codec.codec import decode, encode
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.views import BusMessage, MessageId, MessageMeta, meta


def test_a_new_message_id_is_unique_text() -> None:
    ids = {MessageId.new() for _ in range(100)} | {MessageId()}
    assert len(ids) == 101
    assert all(type(id) is MessageId and isinstance(id, str) for id in ids)


def test_a_message_id_never_meets_that_of_a_message() -> None:
    ids = [MessageId.new(), Message.new("c").id, MessageId.new(), Message.new("c").id]
    assert len(set(ids)) == 4


def test_a_message_id_compares_and_hashes_as_its_text() -> None:
    assert MessageId.from_str("x") == "x" == MessageId("x")
    assert {MessageId("x"): 1}["x"] == 1
    assert MessageId.from_str("") == ""


def test_meta_shows_what_the_first_design_named() -> None:
    fields = {"trace_id": "t", "correlation_id": "c", "source": "s", "custom": {"a": "1", "n": 2}}
    shown = meta(Message.new("c").with_fields(fields))
    assert shown == MessageMeta("t", "c", "s", {"a": "1", "n": 2})
    assert (shown.trace_id, shown.correlation_id, shown.source, shown.custom) == ("t", "c", "s", {"a": "1", "n": 2})


def test_meta_of_a_bare_message_is_the_default() -> None:
    message = Message.new("c")
    assert meta(message) == MessageMeta()
    assert dict(MessageMeta().custom) == {}
    assert message.properties is None


def test_meta_can_be_given_to_a_message() -> None:
    given = MessageMeta("t", "c", "s", {"a": "1"})
    assert meta(Message.new("c").with_fields(given.as_fields())) == given


@pytest.mark.parametrize("other", [MessageMeta("x"), MessageMeta(source="x"), MessageMeta(custom={"a": 1}), "text"])
def test_metas_differ_by_any_field(other: object) -> None:
    assert MessageMeta() != other


def test_equal_metas_hash_equally_and_show_no_values() -> None:
    assert hash(MessageMeta("t", custom={"a": 1})) == hash(MessageMeta("t", custom={"a": 1}))
    assert repr(MessageMeta("secret", custom={"a": "secret"})) == "MessageMeta(trace_id, headers)"


def test_a_bus_message_shows_its_message() -> None:
    body = {"n": 1}
    message = Message.new("topic", body, 5).with_fields(
        {"correlation_id": "c", "tracing": {"k": "v"}, "metadata": {"a": 1}, "backend_id": "1-0"}
    )
    message.delivery_count = 3
    view = BusMessage(message)
    assert view.payload is body
    assert (view.topic, view.priority, view.correlation_id, view.backend_id) == ("topic", 5, "c", "1-0")
    assert (view.tracing, view.metadata, view.delivery_attempts) == ({"k": "v"}, {"a": 1}, 3)


def test_a_view_follows_its_message() -> None:
    message = Message.new("c")
    view = BusMessage(message)
    message.delivery_count += 1
    message.sequence = 9
    assert (view.delivery_attempts, view.sort_key) == (1, (50, 9))


def test_a_missing_correlation_id_is_the_message_id_for_ever() -> None:
    # Unique per message; unlike a random one it survives every view, copy and encoding.
    message = Message.new("c")
    given = BusMessage(message).correlation_id
    assert given == message.id
    assert BusMessage(message).correlation_id == BusMessage(decode(encode(message))).correlation_id == given
    assert BusMessage(Message.new("c")).correlation_id != given
    assert message.properties is None


def test_the_order_is_by_priority_then_sequence_whatever_the_clock_says() -> None:
    # Enqueued_time is the true wall clock and breaks no tie.
    places = [(1, 50, 9_000_000_000), (2, 50, 3_000_000_000), (3, 0, 9_000_000_000)]
    views = []
    for sequence, priority, stamp in places:
        message = restored("i", "c", None, stamp, None)
        message.sequence, message.priority = sequence, priority
        views.append(BusMessage(message))
    assert [view.sort_key for view in sorted(views, key=lambda view: view.sort_key)] == [(0, 3), (50, 1), (50, 2)]
    assert [view.enqueued_time for view in views] == [9.0, 3.0, 9.0]


def test_views_of_one_message_are_equal() -> None:
    message = Message.new("c", "secret")
    assert BusMessage(message) == BusMessage(message)
    assert BusMessage(message) != BusMessage(Message.new("c", "secret"))
    assert len({BusMessage(message), BusMessage(message)}) == 1
    assert "secret" not in repr(BusMessage(message))
