"""Dead letters that died twice, their time-to-live, and the order in which they are listed."""

import pytest

from tests.unit.bus.graveyard import Desk, dead_letter, dead_place, kill
from tests.unit.bus.probes import HandClock
from tests.unit.bus.rigs import Rig
from unibus.errors import UsageError

RETRY = [{"action": "retry"}]


def test_a_letter_that_died_twice_goes_back_to_where_it_died_first(rig: Rig) -> None:
    desk = Desk(rig)
    dead_letter(rig, "q", "a", "first")
    kill(rig, dead_place("q"), "second")
    (letter,) = desk.list_messages()
    assert (letter.source, letter.failure_reason, letter.entity) == ("q", "second", dead_place("q"))
    assert desk.retry_message(letter).entity == "q"
    assert [message.body for message in rig.peek("q", 10)] == ["a"]


def test_rules_and_edits_bring_it_back_too(rig: Rig) -> None:
    desk = Desk(rig)
    for body in ("a", "b"):
        dead_letter(rig, "q", body)
        kill(rig, dead_place("q"), "second")
    first = desk.list_messages(source="q")[0]
    assert desk.edit_and_resend(first, body="edited").success
    assert desk.process_dead_letters(rules=RETRY).retried == 1
    assert len(rig.peek("q", 10)) == 2
    assert desk.list_messages() == []


@pytest.mark.parametrize("verb", ["retry_message", "retry_all", "redirect_message"])
def test_its_own_time_to_live_begins_again(timed_rig: Rig, hand_clock: HandClock, verb: str) -> None:
    desk = Desk(timed_rig)
    timed_rig.create_queue("q")
    message_id = dead_letter(timed_rig, "q", "a", ttl=5)
    dead_letter(timed_rig, "q", "no ttl")
    hand_clock.advance(60)
    if verb == "redirect_message":
        assert desk.redirect_message(message_id, "q").success
    elif verb == "retry_all":
        assert desk.retry_all(queue="q").retried == 2
    else:
        assert desk.retry_message(message_id).success
    assert "a" in [message.body for message in timed_rig.peek("q", 10)]
    hand_clock.advance(4)
    assert "a" in [message.body for message in timed_rig.peek("q", 10)]
    hand_clock.advance(2)
    assert "a" not in [message.body for message in timed_rig.peek("q", 10)]
    assert len(timed_rig.peek("q", 10)) == (1 if verb == "retry_all" else 0)


def test_the_order_of_a_query(timed_rig: Rig, hand_clock: HandClock) -> None:
    desk = Desk(timed_rig)
    for entity, body, reason in (("b", "xxxxxx", "first"), ("a", "x", "third"), ("c", "xxx", "second")):
        dead_letter(timed_rig, entity, body, reason)
        hand_clock.advance(1)

    def reasons(order_by: str, **more: object) -> list[str]:
        return [letter.failure_reason for letter in desk.query_dlq({"order_by": order_by, **more})]

    assert reasons("failure_timestamp", limit=100) == ["first", "third", "second"]
    assert reasons("-failure_timestamp", limit=2) == ["second", "third"]
    assert reasons("failure_reason") == ["first", "second", "third"]
    assert reasons("entity") == ["third", "first", "second"]
    assert reasons("-size", limit=1) == ["first"]


def test_an_order_that_cannot_be(rig: Rig) -> None:
    desk = Desk(rig)
    dead_letter(rig, "q", "a")
    (letter,) = desk.list_messages()
    for filters in ({"order_by": "colour"}, {"order_by": 7}, {"order_by": "size", "after": letter}):
        with pytest.raises(UsageError):
            desk.query_dlq(filters)
    assert desk.query_dlq({"order_by": "failure_timestamp", "after": letter}) == []
