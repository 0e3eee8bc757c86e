"""Messages that are dead-lettered twice, their time-to-live, and the order of a list."""

import pytest

from tests.unit.bus.dead_letter_rig import DeadLetterOperations, dead_letter, dead_letter_next, dead_letter_queue_of
from tests.unit.bus.probes import HandClock
from tests.unit.bus.rigs import Rig
from unibus.errors import UsageError

RETRY = [{"action": "retry"}]


def test_a_message_that_was_dead_lettered_twice_is_retried_in_its_first_source(rig: Rig) -> None:
    dlq = DeadLetterOperations(rig)
    dead_letter(rig, "q", "a", "first")
    dead_letter_next(rig, dead_letter_queue_of("q"), "second")
    (dead_message,) = dlq.list_messages()
    assert (dead_message.source, dead_message.failure_reason, dead_message.entity) == (
        "q",
        "second",
        dead_letter_queue_of("q"),
    )
    assert dlq.retry_message(dead_message).entity == "q"
    assert [message.body for message in rig.peek("q", 10)] == ["a"]


def test_rules_and_edits_bring_it_back_too(rig: Rig) -> None:
    dlq = DeadLetterOperations(rig)
    for body in ("a", "b"):
        dead_letter(rig, "q", body)
        dead_letter_next(rig, dead_letter_queue_of("q"), "second")
    first = dlq.list_messages(source="q")[0]
    assert dlq.edit_and_resend(first, body="edited").success
    assert dlq.process_dead_letters(rules=RETRY).retried == 1
    assert len(rig.peek("q", 10)) == 2
    assert dlq.list_messages() == []


@pytest.mark.parametrize("verb", ["retry_message", "retry_all", "redirect_message"])
def test_its_own_time_to_live_begins_again(timed_rig: Rig, hand_clock: HandClock, verb: str) -> None:
    dlq = DeadLetterOperations(timed_rig)
    timed_rig.create_queue("q")
    message_id = dead_letter(timed_rig, "q", "a", ttl=5)
    dead_letter(timed_rig, "q", "no ttl")
    hand_clock.advance(60)
    if verb == "redirect_message":
        assert dlq.redirect_message(message_id, "q").success
    elif verb == "retry_all":
        assert dlq.retry_all(queue="q").retried == 2
    else:
        assert dlq.retry_message(message_id).success
    assert "a" in [message.body for message in timed_rig.peek("q", 10)]
    hand_clock.advance(4)
    assert "a" in [message.body for message in timed_rig.peek("q", 10)]
    hand_clock.advance(2)
    assert "a" not in [message.body for message in timed_rig.peek("q", 10)]
    assert len(timed_rig.peek("q", 10)) == (1 if verb == "retry_all" else 0)


def test_the_order_of_a_query(timed_rig: Rig, hand_clock: HandClock) -> None:
    dlq = DeadLetterOperations(timed_rig)
    for entity, body, reason in (("b", "xxxxxx", "first"), ("a", "x", "third"), ("c", "xxx", "second")):
        dead_letter(timed_rig, entity, body, reason)
        hand_clock.advance(1)

    def reasons(order_by: str, **more: object) -> list[str]:
        return [dead_message.failure_reason for dead_message in dlq.query_dlq({"order_by": order_by, **more})]

    assert reasons("failure_timestamp", limit=100) == ["first", "third", "second"]
    assert reasons("-failure_timestamp", limit=2) == ["second", "third"]
    assert reasons("failure_reason") == ["first", "second", "third"]
    assert reasons("entity") == ["third", "first", "second"]
    assert reasons("-size", limit=1) == ["first"]


def test_an_order_that_cannot_be(rig: Rig) -> None:
    dlq = DeadLetterOperations(rig)
    dead_letter(rig, "q", "a")
    (dead_message,) = dlq.list_messages()
    for filters in ({"order_by": "colour"}, {"order_by": 7}, {"order_by": "size", "after": dead_message}):
        with pytest.raises(UsageError):
            dlq.query_dlq(filters)
    assert dlq.query_dlq({"order_by": "failure_timestamp", "after": dead_message}) == []
