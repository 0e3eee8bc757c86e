"""Queues: what is sent is kept, handed out once, and settled; on both faces and over both stores."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.unit.bus.probes import HandClock, HandTimers
from tests.unit.bus.rigs import Rig, fails
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message
from unibus.errors import (
    BusClosed,
    BusError,
    ConfigInvalid,
    DuplicateMessage,
    EntityExists,
    EntityNotFound,
    LockLost,
    MessageNotFound,
    NameInvalid,
    QuotaExceeded,
    UsageError,
)

# Sending


def test_what_is_sent_is_received_once(rig: Rig) -> None:
    result = rig.send("q", {"id": 1}, headers={"k": "v"}, correlation_id="c")
    assert (result.entity, result.sequence, result.duplicate) == ("q", 1, False)
    assert result.durability == ("D2" if rig.durable else "D0")
    (message,) = rig.take("q", 10)
    assert (message.body, message.id, message.sequence) == ({"id": 1}, result.id, 1)
    assert (message.headers["k"], message.correlation_id, message.delivery_count) == ("v", "c", 1)
    assert message.entity == "q"
    assert message.lock_token is not None
    assert rig.take("q") == []  # It is locked.
    rig.do(message.complete)
    assert rig.counts("q") == (0, 0, 0, 0, 0)


def test_the_more_urgent_comes_first_and_equals_in_order(rig: Rig) -> None:
    for body, priority in [("a", 100), ("b", 1), ("c", 100), ("d", 255)]:
        rig.send("q", body, priority=priority)
    assert [message.body for message in rig.take("q", 10)] == ["b", "a", "c", "d"]


def test_several_are_one_batch(rig: Rig) -> None:
    results = rig.send_many("q", [1, 2, 3], priority=7, headers={"k": "v"})
    assert [result.sequence for result in results] == [1, 2, 3]
    assert len({result.id for result in results}) == 3
    assert [message.headers["k"] for message in rig.take("q", 10)] == ["v"] * 3
    assert rig.send_many("q", []) == []


def test_a_batch_that_does_not_fit_stores_nothing(rig: Rig) -> None:
    rig.create_queue("q", max_count=3)
    rig.send("q", 0)
    with pytest.raises(QuotaExceeded):
        rig.send_many("q", [1, 2, 3])
    assert rig.counts("q")[0] == 1
    rig.send_many("q", [1, 2])
    assert rig.counts("q")[0] == 3


def test_one_text_is_not_several_payloads(rig: Rig) -> None:
    with pytest.raises(UsageError):
        rig.send_many("q", "abc")


def test_a_message_is_sent_as_it_is(rig: Rig) -> None:
    message = Message.new("q", {"a": 1}).with_priority(3)
    assert rig.send(message).id == message.id
    received = rig.one("q")
    assert (received.id, received.priority, received.body) == (message.id, 3, {"a": 1})
    with pytest.raises(UsageError):
        rig.send(message, 1)
    with pytest.raises(UsageError):
        rig.send(message, priority=1)


def test_a_dedup_key_is_heeded_and_may_be_an_error(rig: Rig) -> None:
    first = rig.send("q", 1, dedup_key="k")
    again = rig.send("q", 2, dedup_key="k")
    assert (first.duplicate, again.duplicate) == (False, True)
    with pytest.raises(DuplicateMessage):
        rig.send("q", 3, dedup_key="k", on_duplicate="error")
    assert [message.body for message in rig.take("q", 10)] == [1]


def test_a_duplicate_within_one_batch_is_an_error_too(rig: Rig) -> None:
    with pytest.raises(DuplicateMessage):
        rig.do(lambda: rig.bus.send_many("q", [1, 2], dedup_key="k", on_duplicate="error"))
    assert rig.take("q", 10) == []
    sent = rig.do(lambda: rig.bus.send_many("q", [1, 2], dedup_key="k"))
    assert [each.duplicate for each in sent] == [False, True]


def test_an_id_of_the_callers_own(rig: Rig) -> None:
    assert rig.send("q", 1, message_id="mine", priority=2).id == "mine"
    received = rig.one("q")
    assert (received.id, received.priority) == ("mine", 2)
    for wrong in ("", 5, "x" * 129):
        with pytest.raises(UsageError):
            rig.send("q", 1, message_id=wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"durability": "D9"},
        {"durability": "D3"},
        {"on_duplicate": "shout"},
        {"priority": 300},
        {"delay": -1},
        {"nonsense": 1},
        {"headers": {"": 1}},
        {"session_id": ""},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_is_wrong_with_a_send_is_said_and_nothing_is_stored(rig: Rig, wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        rig.send("q", 1, **wrong)
    assert rig.take("q") == []


@pytest.mark.parametrize("name", ["", "a b\n", "q/$DeadLetterQueue"])
def test_nobody_sends_to_such_a_name(rig: Rig, name: str) -> None:
    with pytest.raises(BusError):
        rig.send(name, 1)


def test_less_durability_may_be_asked_for(file_rig: Rig) -> None:
    assert file_rig.send("q", 1, durability="D1").durability == "D1"
    assert file_rig.send_many("q", [2], durability="D0")[0].durability == "D0"
    file_rig.reopen()
    assert [message.body for message in file_rig.take("q", 10)] == [1, 2]


# Time


def test_a_delayed_message_comes_when_its_time_has_come(
    timed_rig: Rig, hand_clock: HandClock, hand_timers: HandTimers
) -> None:
    timed_rig.send("q", 1, delay=30)
    assert timed_rig.counts("q") == (0, 0, 1, 0, 0)
    assert timed_rig.take("q") == []
    hand_clock.advance(29)
    assert timed_rig.take("q") == []
    hand_clock.advance(1)
    assert timed_rig.one("q", 0).body == 1


def test_scheduling_gives_a_sequence_that_can_be_cancelled(timed_rig: Rig, hand_clock: HandClock) -> None:
    in_a_while = timed_rig.schedule("q", "a", 30)
    assert isinstance(in_a_while, int)
    timed_rig.schedule("q", "b", timedelta(seconds=30))
    timed_rig.schedule("q", "c", datetime.fromtimestamp(hand_clock.wall / 1e9, UTC) + timedelta(seconds=30))
    timed_rig.cancel_scheduled("q", in_a_while)
    with pytest.raises(MessageNotFound):
        timed_rig.cancel_scheduled("q", in_a_while)
    hand_clock.advance(31)
    assert [message.body for message in timed_rig.take("q", 10)] == ["b", "c"]
    with pytest.raises(MessageNotFound):
        timed_rig.cancel_scheduled("q", 99)


def test_a_message_expires_and_is_gone(timed_rig: Rig, hand_clock: HandClock) -> None:
    timed_rig.create_queue("dead", dead_letter_on_expiration=True)
    timed_rig.send("q", 1, ttl=5)
    timed_rig.send("dead", 1, ttl=5)
    hand_clock.advance(6)
    assert timed_rig.take("q") == []
    assert timed_rig.take("dead") == []
    letter = timed_rig.one("dead/$DeadLetterQueue", 0)
    assert letter.headers["DeadLetterReason"] == "TTLExpiredException"


# Settling


def test_an_abandoned_message_keeps_its_place_and_counts(rig: Rig) -> None:
    rig.send_many("q", ["a", "b"])
    message = rig.one("q")
    rig.do(lambda: message.abandon(properties={"why": "later"}))
    again, other = rig.take("q", 2)
    assert (again.body, again.delivery_count, again.headers["why"]) == ("a", 2, "later")
    assert (other.body, other.delivery_count) == ("b", 1)


def test_a_released_message_was_never_delivered(rig: Rig) -> None:
    rig.send("q", 1)
    rig.do(rig.one("q").release)
    assert rig.one("q").delivery_count == 1


def test_abandoned_with_a_delay_it_comes_after_it(timed_rig: Rig, hand_clock: HandClock) -> None:
    timed_rig.send("q", 1)
    message = timed_rig.one("q")
    timed_rig.do(lambda: message.abandon(delay=5))
    assert timed_rig.take("q") == []
    hand_clock.advance(5)
    assert timed_rig.one("q", 0).delivery_count == 2


def test_too_many_deliveries_are_a_dead_letter(rig: Rig) -> None:
    rig.create_queue("q", max_delivery_count=2)
    rig.send("q", 1)
    for _ in range(2):
        rig.do(rig.one("q").abandon)
    assert rig.take("q") == []
    letter = rig.one("q/$DeadLetterQueue")
    assert letter.headers["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert letter.headers["DeadLetterSource"] == "q"


def test_a_dead_letter_says_why(rig: Rig) -> None:
    rig.send("q", {"a": 1})
    message = rig.one("q")
    rig.do(lambda: message.dead_letter("Broken", "it is broken", {"extra": 1}))
    letter = rig.one("q/$DeadLetterQueue")
    assert letter.body == {"a": 1}
    assert letter.headers["DeadLetterReason"] == "Broken"
    assert letter.headers["DeadLetterErrorDescription"] == "it is broken"
    assert letter.headers["extra"] == 1
    rig.do(letter.complete)
    assert rig.counts("q") == (0, 0, 0, 0, 0)


def test_a_deferred_message_is_received_by_its_sequence_alone(rig: Rig) -> None:
    rig.send_many("q", [1, 2])
    first = rig.one("q")
    rig.do(first.defer)
    assert rig.counts("q")[3] == 1
    with pytest.raises(MessageNotFound):
        rig.receive_deferred("q", [first.sequence, 99])
    assert rig.counts("q")[3] == 1  # All or none.
    (deferred,) = rig.receive_deferred("q", [first.sequence])
    assert (deferred.body, deferred.delivery_count) == (1, 2)
    rig.do(deferred.complete)
    assert [message.body for message in rig.take("q", 10)] == [2]
    with pytest.raises(UsageError):
        rig.receive_deferred("q", [])


def test_completing_many_is_one_batch(rig: Rig) -> None:
    rig.send_many("q", [1, 2, 3])
    messages = rig.take("q", 3)
    rig.do(messages[0].complete)
    with pytest.raises(LockLost):
        rig.complete_many(messages)
    assert rig.counts("q") == (0, 2, 0, 0, 0)
    rig.complete_many(messages[1:])
    assert rig.counts("q") == (0, 0, 0, 0, 0)
    rig.complete_many([])


# Looking, and entities


def test_peek_shows_every_state_and_changes_none(rig: Rig) -> None:
    rig.send_many("q", ["a", "b", "c"])
    rig.send("q", "later", delay=100)
    locked, deferred = rig.take("q", 2)
    rig.do(deferred.defer)
    before = rig.counts("q")
    assert [message.body for message in rig.peek("q", 10)] == ["a", "b", "c", "later"]
    assert [message.sequence for message in rig.peek("q", 2, from_sequence=2)] == [2, 3]
    assert [message.locked_until for message in rig.peek("q", 10)] == [locked.locked_until, None, None, None]
    assert f"locked until {locked.locked_until:%Y-%m-%d %H:%M:%S} UTC" in repr(rig.peek("q"))
    assert rig.counts("q") == before == (1, 1, 1, 1, 0)
    rig.do(locked.complete)
    with pytest.raises(UsageError):
        rig.peek("q", 0)
    with pytest.raises(EntityNotFound):
        rig.peek("nobody", 1)


def test_entities_are_made_listed_changed_and_deleted(rig: Rig) -> None:
    rig.create_queue("q", lock_duration=5)
    rig.create_queue("q", lock_duration=5)
    with pytest.raises(EntityExists):
        rig.create_queue("q", lock_duration=6)
    rig.update_entity("q", lock_duration=7)
    assert rig.info("q").settings["lock_duration"] == 7
    rig.create_topic("t")
    rig.create_subscription("t", "s", max_delivery_count=3)
    rig.send("t", 1)
    assert rig.take("t/Subscriptions/s")[0].body == 1
    assert [(info.name, info.kind) for info in rig.entities()] == [
        ("q", "queue"),
        ("t", "topic"),
        ("t/Subscriptions/s", "subscription"),
    ]
    rig.delete_entity("t")
    assert [info.name for info in rig.entities()] == ["q"]
    with pytest.raises(EntityNotFound):
        rig.delete_entity("t")


def test_settings_and_names_are_checked(rig: Rig) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        rig.create_queue("q", lock_durration=5)
    assert "lock_duration" in caught.value.hint
    for name in ("$mine", "a/Subscriptions/b", "a/$DeadLetterQueue"):
        with pytest.raises(NameInvalid):
            rig.create_queue(name)
    for name in ("$mine", "a/b"):
        with pytest.raises(NameInvalid):
            rig.create_subscription("t", name)
    assert rig.entities() == []


@pytest.mark.immediate
@pytest.mark.parametrize("face", [MessageBus, SyncMessageBus])
async def test_a_strict_bus_makes_no_queue(face: type) -> None:
    bus = face(strict=True)
    try:
        with pytest.raises(EntityNotFound):
            bus.send("q", 1)
        with fails(EntityNotFound):
            received = bus.receive_batch("q", 1, timeout=0)
            await received
    finally:
        closing = bus.close(0.2)
        if closing is not None:
            await closing


# The file


def test_a_queue_survives_reopening(file_rig: Rig) -> None:
    file_rig.create_queue("q", lock_duration=5, max_delivery_count=7)
    file_rig.send_many("q", ["done", "deferred", "abandoned", "waiting"], priority=9)
    done, deferred, abandoned = file_rig.take("q", 3)
    file_rig.do(done.complete)
    file_rig.do(deferred.defer)
    file_rig.do(abandoned.abandon)
    file_rig.schedule("q", "scheduled", 1_000)
    before = file_rig.info("q")
    file_rig.reopen()
    assert file_rig.info("q") == before
    assert file_rig.counts("q") == (2, 0, 1, 1, 0)
    assert [(each.body, each.delivery_count) for each in file_rig.take("q", 9)] == [("abandoned", 2), ("waiting", 1)]
    assert file_rig.send("q", "next").sequence == before.last_sequence + 1


def test_a_lock_is_still_a_lock_after_reopening(file_rig: Rig) -> None:
    file_rig.send("q", 1)
    message = file_rig.one("q")
    file_rig.reopen()
    assert file_rig.take("q") == []
    assert file_rig.counts("q") == (0, 1, 0, 0, 0)
    with pytest.raises(BusClosed):
        file_rig.do(message.complete)


def test_history_tells_what_happened(rig: Rig) -> None:
    sent = rig.send("q", 1)
    rig.do(rig.one("q").complete)
    rows, safe = rig.bus.events_after(0)
    assert [(row.kind, row.message_id) for row in rows if row.channel == "q"][-3:] == [
        (kind, sent.id) for kind in ("sent", "delivered", "completed")
    ]
    assert safe >= rows[-1].seq
    assert rig.bus.events_after(safe)[0] == []


def test_a_reader_of_history_is_remembered(rig: Rig) -> None:
    rig.send("q", 1)
    assert (rig.bus.cursor("audit"), rig.bus.missed_events("audit")) == (0, 0)
    _, safe = rig.bus.events_after(0)
    rig.bus.move_cursor("audit", safe)
    assert (rig.bus.cursor("audit"), rig.bus.missed_events("audit")) == (safe, 0)
    for wrong in (-1, True, "3"):
        with pytest.raises(UsageError):
            rig.bus.move_cursor("audit", wrong)


# A closed bus


def test_a_closed_bus_refuses_every_verb(face: type, store_path: Path | None) -> None:
    rig = Rig(face, store_path)
    rig.send_many("q", [1, 2])
    message = rig.one("q")
    rig.close()
    rig.close()
    verbs = [
        lambda: rig.send("q", 1),
        lambda: rig.send_many("q", [1]),
        lambda: rig.take("q"),
        lambda: rig.each("q"),
        lambda: rig.receive_deferred("q", [1]),
        lambda: rig.complete_many([message]),
        lambda: rig.peek("q"),
        lambda: rig.schedule("q", 1, 5),
        lambda: rig.cancel_scheduled("q", 1),
        lambda: rig.accept_session("q", timeout=0),
        lambda: rig.create_queue("x"),
        lambda: rig.create_topic("x"),
        lambda: rig.create_subscription("x", "y"),
        lambda: rig.update_entity("q", lock_duration=1),
        lambda: rig.delete_entity("q"),
        lambda: rig.entities(),
        lambda: rig.transaction(),
        lambda: rig.events_after(),
        lambda: rig.publish("c"),
        lambda: rig.publish_many("c", [1]),
        lambda: rig.publish_from_sync("c"),
        lambda: rig.subscribe("c", print),
        lambda: rig.create_channel("x", persistent=True),
        lambda: rig.do(message.complete),
        lambda: rig.do(message.abandon),
        lambda: rig.do(message.renew_lock),
    ]
    for number, verb in enumerate(verbs):
        with pytest.raises(BusClosed):
            pytest.fail(f"verb {number} gave {verb()!r}")
    rig.end()
