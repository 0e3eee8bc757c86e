"""The trace of a message: the tree of its copies, and why it was not delivered."""

from collections.abc import Iterator
from typing import Any

import pytest

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.history.trace import MessageTrace, TracedCopy
from unibus.core.filters.filters import SqlFilter
from unibus.core.lifecycle.commands import MOVE_REDIRECT, Move
from unibus.core.lifecycle.state.rules import Rule
from unibus.errors import UsageError
from unibus.testing.clock.virtual_clock import VirtualClock

DEAD = "/$DeadLetterQueue"


@pytest.fixture
def moving_bus() -> Iterator[SyncMessageBus]:
    """For what needs time to pass: a schedule; and which subscriptions were made after a publish."""
    with SyncMessageBus() as bus:
        yield bus


@pytest.fixture(params=["time passes", "one instant"])
def bus(request: pytest.FixtureRequest) -> Iterator[SyncMessageBus]:
    """Also with a clock that does not move: then all events have the same time, and only their sequence counts."""
    with VirtualClock() as clock, SyncMessageBus(clock=None if request.param == "time passes" else clock) as bus:
        yield bus


def shape(copy: TracedCopy) -> Any:
    """A tree in short: the entity, the outcome, and the copies made from there."""
    return (copy.channel, copy.outcome, *(shape(child) for child in copy.children))


def shapes(trace: MessageTrace) -> list[Any]:
    return [shape(root) for root in trace.roots]


def take(bus: SyncMessageBus, entity: str) -> Any:
    (message,) = bus.receive_batch(entity, 1, timeout=5)
    return message


def test_a_message_of_a_queue_from_its_sending_to_its_end(bus: SyncMessageBus) -> None:
    sent = bus.send("q", "x")
    assert shapes(bus.trace_message(sent.id)) == [("q", "waiting")]
    message = take(bus, "q")
    trace = bus.trace_message(sent.id)
    assert shapes(trace) == [("q", "in flight")]
    assert trace.copies()[0].reason.endswith(f"; its lock ends at {message.locked_until:%Y-%m-%d %H:%M:%S} UTC")
    message.abandon()
    trace = bus.trace_message(sent.id)
    assert (trace.status, trace.not_delivered()) == (
        "waiting",
        [("q", "it was returned (abandoned) and waits for redelivery")],
    )
    take(bus, "q").complete()
    trace = bus.trace_message(sent.id)
    assert (trace.status, trace.not_delivered()) == ("completed", [])
    assert [step.kind for step in trace.roots[0].steps] == ["sent", "delivered", "returned", "delivered", "completed"]
    assert [step.at for step in trace.roots[0].steps] == sorted(step.at for step in trace.roots[0].steps)


def test_a_topic_hands_copies_to_its_subscriptions(bus: SyncMessageBus) -> None:
    bus.create_topic("t")
    bus.create_subscription("t", "a")
    bus.create_subscription("t", "b")
    sent = bus.send("t", "x")
    take(bus, "t/Subscriptions/a").complete()
    trace = bus.trace_message(sent.id)
    expected = ("t", "passed on", ("t/Subscriptions/a", "completed"), ("t/Subscriptions/b", "waiting"))
    assert shapes(trace) == [expected]
    assert trace.not_delivered() == [("t/Subscriptions/b", "no consumer has received it yet")]


@pytest.mark.parametrize(("names", "text"), [("", "no copies"), ("a", "1 copy"), ("ab", "2 copies")])
def test_a_step_says_how_many_copies_there_are(bus: SyncMessageBus, names: str, text: str) -> None:
    bus.create_topic("t")
    for name in names:
        bus.create_subscription("t", name)
    step = bus.trace_message(bus.send("t", "x").id).roots[0].steps[0]
    assert step.text == f"routed, {text}"


def test_forwarding_is_followed_over_several_entities(bus: SyncMessageBus) -> None:
    bus.create_queue("end")
    bus.create_topic("t")
    bus.create_subscription("t", "onward", forward_to="end")
    bus.create_subscription("t", "here")
    bus.create_queue("begin", forward_to="t")
    sent = bus.send("begin", "x")
    expected = (
        "begin",
        "passed on",
        (
            "t",
            "passed on",
            ("t/Subscriptions/here", "waiting"),
            ("t/Subscriptions/onward", "passed on", ("end", "waiting")),
        ),
    )
    assert shapes(bus.trace_message(sent.id)) == [expected]


def test_dead_letters_and_what_is_done_with_them(bus: SyncMessageBus) -> None:
    bus.create_queue("other")
    sent = bus.send("q", "x")
    take(bus, "q").dead_letter("Broken", "no such order")
    trace = bus.trace_message(sent.id)
    assert shapes(trace) == [("q", "dead-lettered", ("q" + DEAD, "waiting"))]
    assert trace.status == "dead-lettered"
    assert trace.roots[0].reason == "Broken"
    move = Move("q" + DEAD, 1, "other")
    move.action = MOVE_REDIRECT
    bus._runtime.queues().store.apply([move]).wait()
    take(bus, "other").complete()
    trace = bus.trace_message(sent.id)
    assert shapes(trace) == [("q", "dead-lettered", ("q" + DEAD, "passed on", ("other", "completed")))]
    assert (trace.status, trace.not_delivered()) == ("completed", [])
    assert "redirect to other" in [step.text for step in trace.roots[0].children[0].steps]


def test_dead_letters_that_are_forwarded_to_a_topic(bus: SyncMessageBus) -> None:
    bus.create_topic("failed")
    bus.create_subscription("failed", "s")
    bus.create_queue("q", forward_dead_letters_to="failed")
    sent = bus.send("q", "x")
    take(bus, "q").dead_letter("Broken")
    expected = ("q", "dead-lettered", ("failed", "passed on", ("failed/Subscriptions/s", "waiting")))
    assert shapes(bus.trace_message(sent.id)) == [expected]


def test_subscriptions_that_declined_are_listed(moving_bus: SyncMessageBus) -> None:
    bus = moving_bus
    bus.create_topic("news")
    bus.create_subscription("news", "all")
    bus.create_subscription("news", "red", rules=[Rule("r", SqlFilter("hue = 'red'"))])
    blue = bus.send("news", "x", headers={"hue": "blue"})
    bus.create_subscription("news", "late")
    take(bus, "news/Subscriptions/all").complete()
    trace = bus.trace_message(blue.id)
    assert trace.status == "completed", "who did not want it leaves nothing to do"
    assert trace.not_delivered() == [("news/Subscriptions/red", "no rule matched")]
    [topic] = trace.roots
    assert (topic.outcome, topic.reason) == ("passed on", "")
    assert [child.channel for child in topic.children] == ["news/Subscriptions/all"]
    bus.delete_entity("news/Subscriptions/all")
    bus.delete_entity("news/Subscriptions/late")
    green = bus.send("news", "x", headers={"hue": "green"})
    assert bus.trace_message(green.id).not_delivered() == [
        ("news", "not routed: no filter matched"),
        ("news/Subscriptions/red", "no rule matched"),
    ]
    bus.entities.update_rule("news", "red", "r", "hue = 'green'")
    [*_, (_, why)] = bus.trace_message(green.id).not_delivered()
    assert why == "no rule matched; its settings were changed since"


def test_every_way_of_not_arriving_has_its_reason(bus: SyncMessageBus) -> None:
    bus.create_topic("unknown")
    unheard = bus.send("unknown", "x")
    assert "not routed" in bus.trace_message(unheard.id).roots[0].reason
    bus.send("q", "x", dedup_key="k", message_id="first")
    bus.send("q", "x", dedup_key="k", message_id="again")
    [copy] = bus.trace_message("again").roots
    assert (copy.outcome, copy.reason) == (
        "not delivered",
        "it is a duplicate of an earlier message with its id or dedup key",
    )
    assert copy.sequence == 0
    bus.send("q", "x", dedup_key="k", message_id="first")
    assert bus.trace_message("first").status == "waiting", "a duplicate says nothing of the first"
    sequence = bus.schedule("q", "x", 100, message_id="later")
    assert bus.trace_message("later").roots[0].reason == "its scheduled time is in the future"
    bus.cancel_scheduled("q", sequence)
    assert bus.trace_message("later").roots[0].reason == "the scheduled message was cancelled"
    bus.send("gone", "x", message_id="with its queue")
    bus.delete_entity("gone")
    assert "its queue was deleted" in bus.trace_message("with its queue").roots[0].reason
    bus.delete_message("first")
    assert bus.trace_message("first").roots[0].reason == "removed by an operator: deleted"


def test_a_scheduled_message_is_one_copy_under_both_its_numbers(moving_bus: SyncMessageBus) -> None:
    bus = moving_bus
    bus.schedule("q", "x", 0.01, message_id="m")
    take(bus, "q").complete()
    [copy] = bus.trace_message("m").roots
    assert [step.kind for step in copy.steps] == ["scheduled", "activated", "delivered", "completed"]
    assert copy.sequence == 2


def test_two_sends_with_one_id_are_two_roots(bus: SyncMessageBus) -> None:
    bus.send("q", 1, message_id="m")
    bus.send("q", 2, message_id="m")
    assert shapes(bus.trace_message("m")) == [("q", "waiting"), ("q", "waiting")]


def test_one_that_history_does_not_know(bus: SyncMessageBus) -> None:
    trace = bus.trace_message("unknown")
    assert not trace
    assert (trace.roots, trace.status) == ([], "unknown")
    with pytest.raises(UsageError):
        bus.trace_message(7)


def test_dead_letters_of_several_copies_are_followed(bus: SyncMessageBus) -> None:
    bus.create_topic("t")
    bus.create_topic("graves")
    bus.create_subscription("graves", "all")
    for name in ("a", "b"):
        bus.create_subscription("t", name, forward_dead_letters_to="graves" if name == "b" else None)
    sent = bus.send("t", "x")
    for name in ("a", "b"):
        take(bus, f"t/Subscriptions/{name}").dead_letter("bad")
    expected = (
        "t",
        "passed on",
        ("t/Subscriptions/a", "dead-lettered", (f"t/Subscriptions/a{DEAD}", "waiting")),
        ("t/Subscriptions/b", "dead-lettered", ("graves", "passed on", ("graves/Subscriptions/all", "waiting"))),
    )
    assert shapes(bus.trace_message(sent.id)) == [expected]


def test_a_forward_that_came_to_a_duplicate(bus: SyncMessageBus) -> None:
    bus.create_queue("end", dedup_window=60)
    bus.create_queue("begin", forward_to="end")
    bus.send("end", "x", message_id="m")
    bus.send("begin", "x", message_id="m")
    trace = bus.trace_message("m")
    assert shapes(trace) == [("end", "waiting"), ("begin", "passed on", ("end", "not delivered"))]
    assert trace.status == "waiting"


def step_texts(copy: TracedCopy) -> list[str]:
    return [step.text for step in copy.steps]


def test_a_forward_that_was_refused_says_why(bus: SyncMessageBus) -> None:
    bus.create_queue("end", max_count=1)
    bus.send("end", "first")
    bus.create_queue("begin", forward_to="end")
    bus.create_topic("t")
    bus.create_subscription("t", "onward", forward_to="end")
    why = "QuotaExceededException: 'end' holds 1 message and may hold 1"
    for name, place in (("begin", "begin"), ("t", "t/Subscriptions/onward")):
        trace = bus.trace_message(bus.send(name, "x").id)
        refused = next(copy for copy in trace.copies() if copy.channel == place)
        assert shape(refused) == (place, "dead-lettered", (f"{place}{DEAD}", "waiting"))
        assert refused.reason == why
        assert step_texts(refused.children[0]) == [f"arrived: {why}"]
        assert trace.not_delivered()[0] == (place, why)
        assert trace.status == "dead-lettered"


def test_the_reason_stays_when_the_dead_letter_is_gone(bus: SyncMessageBus) -> None:
    bus.create_queue("begin", forward_to="missing")
    sent = bus.send("begin", "x")
    take(bus, f"begin{DEAD}").complete()
    trace = bus.trace_message(sent.id)
    assert trace.roots[0].reason == "ForwardTargetNotFound: no entity 'missing'"
    assert trace.not_delivered() == []  # The dead-lettered message was completed.


def test_a_scheduled_message_whose_forward_was_refused_says_why(moving_bus: SyncMessageBus) -> None:
    moving_bus.create_queue("begin", forward_to="end")
    sent = moving_bus.send("begin", "x", delay=0.001)
    take(moving_bus, f"begin{DEAD}").release()
    trace = moving_bus.trace_message(sent.id)
    reasons = [(copy.channel, copy.reason) for copy in trace.copies()]
    assert ("begin", "ForwardTargetNotFound: no entity 'end'") in reasons


def test_a_dead_letter_that_was_not_forwarded_says_why_and_not_more(bus: SyncMessageBus) -> None:
    bus.create_queue("graves", max_count=1)
    bus.send("graves", "first")
    bus.create_queue("q", forward_dead_letters_to="graves")
    sent = bus.send("q", "x")
    take(bus, "q").dead_letter("bad", "card 4711")
    trace = bus.trace_message(sent.id)
    why = "not forwarded: 'graves' holds 1 message and may hold 1"
    assert trace.roots[0].reason == f"bad; {why}"
    assert step_texts(trace.roots[0].children[0]) == [f"arrived: {why}"]
    assert "4711" not in str(trace)  # What was said about the failure is in the message, not in history.


def test_a_dead_letter_of_a_receiver_has_its_reason_once(bus: SyncMessageBus) -> None:
    sent = bus.send("q", "x")
    take(bus, "q").dead_letter("QuotaExceededException", "ours")
    trace = bus.trace_message(sent.id)
    assert trace.roots[0].reason == "QuotaExceededException"
    assert step_texts(trace.roots[0].children[0]) == ["arrived"]


def test_a_forward_that_came_to_a_duplicate_is_one_after_the_entity_was_changed(bus: SyncMessageBus) -> None:
    bus.create_queue("end", dedup_window=60)
    bus.create_queue("begin", forward_to="end")
    bus.create_topic("t")
    bus.create_subscription("t", "onward", forward_to="end")
    bus.send("end", "x", message_id="m")
    bus.send("begin", "x", message_id="m")
    bus.send("t", "x", message_id="m")
    bus.update_entity("begin", forward_to=None)
    bus.delete_entity("t/Subscriptions/onward")
    onward = ("t/Subscriptions/onward", "passed on", ("end", "not delivered"))
    expected = [("end", "waiting"), ("begin", "passed on", ("end", "not delivered")), ("t", "passed on", onward)]
    assert shapes(bus.trace_message("m")) == expected


def test_a_duplicate_behind_a_topic_without_subscriptions_is_a_send_of_its_own(bus: SyncMessageBus) -> None:
    bus.create_queue("end", dedup_window=60)
    bus.create_topic("t")
    bus.send("end", "x", message_id="m")
    bus.send("t", "x", message_id="m")
    bus.send("end", "x", message_id="m")
    assert shapes(bus.trace_message("m")) == [("end", "waiting"), ("t", "not delivered"), ("end", "not delivered")]


def test_another_message_of_the_same_id_is_no_copy(bus: SyncMessageBus) -> None:
    bus.create_topic("graves")
    bus.create_subscription("graves", "all")
    bus.create_queue("q", forward_dead_letters_to="graves")
    bus.send("q", "x", message_id="m")
    message = take(bus, "q")
    bus.send("other", "x", message_id="m")
    message.dead_letter("bad")
    dead = ("q", "dead-lettered", ("graves", "passed on", ("graves/Subscriptions/all", "waiting")))
    assert shapes(bus.trace_message("m")) == [dead, ("other", "waiting")]
