"""The contract of rules: which subscriptions get a message, with which changes, and when rules are evaluated."""

from datetime import timedelta

import pytest

from unibus.core.codec.codec import encode
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import HeaderValue, MessageProperties
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.commands import DEAD_LETTER, Declare, DropRule, Move, Send, SendResult, SetRule
from unibus.core.lifecycle.state.changes import MessageRef
from unibus.core.lifecycle.state.entity import SUBSCRIPTION
from unibus.core.lifecycle.state.rules import DEFAULT_RULE, Rule, text_of
from unibus.errors import ConfigInvalid, EntityExists, EntityNotFound, QuotaExceeded, UsageError
from unibus.testing.contracts.rig import SECOND, Contract, Rig, bodies, headers, sending


def publish(rig: Rig, body: object, visible_ns: int = 0, **given: HeaderValue) -> SendResult:
    """Send a message with these headers to the topic t."""
    message = Message.new("t", body, 50)
    message.properties = MessageProperties()
    message.properties.headers = dict(given)
    data = encode(message)
    command = Send("t", MessageRef(message.id, len(data)), data, 50)
    command.visible_ns = visible_ns
    [result] = rig.run(command)
    assert isinstance(result, SendResult)
    return result


def lasting(entity: str, seconds: int) -> Send:
    """A send with a time-to-live, which is in the envelope too: an action reads it there."""
    message = Message.new(entity, "lasting", 50)
    message.properties = MessageProperties()
    message.properties.ttl_ns = seconds * SECOND
    data = encode(message)
    command = Send(entity, MessageRef(message.id, len(data)), data, 50)
    command.ttl_ns = seconds * SECOND
    return command


def ruled(rig: Rig, name: str, *rules: Rule, **settings: str | int | float | bool | None) -> str:
    return rig.subscription("t", name, rules=text_of(rules), **settings)


def sql(expression: str) -> Filter:
    return SqlFilter(expression)


def stamp(name: str) -> SqlRuleAction:
    return SqlRuleAction(f"SET {name} = TRUE")


class RuleContract(Contract):
    """One copy for a subscription, and one more for each rule that changes the message."""

    def test_each_subscription_gets_what_its_rules_take(self, rig: Rig) -> None:
        rig.topic("t")
        everything = rig.subscription("t", "all")
        red = ruled(rig, "red", Rule("r", sql("color = 'red'")))
        cheap = ruled(rig, "cheap", Rule("c", sql("price < 10")), Rule("free", sql("price = 0")))
        key = ruled(rig, "key", Rule("k", CorrelationFilter(properties={"key": 7})))
        nothing = ruled(rig, "nothing", Rule("n", FalseFilter()))
        publish(rig, "a", color="red", price=20)
        publish(rig, "b", color="blue", price=0)
        publish(rig, "c", key=7)
        assert rig.drain(everything) == ["a", "b", "c"]
        assert (rig.drain(red), rig.drain(cheap), rig.drain(key)) == (["a"], ["b"], ["c"])
        assert rig.drain(nothing) == []

    def test_a_rule_with_an_action_makes_a_copy_of_its_own(self, rig: Rig) -> None:
        rig.topic("t")
        both = ruled(
            rig,
            "both",
            Rule("plain", sql("color = 'red'")),
            Rule("again", TrueFilter()),
            Rule("marked", sql("color = 'red'"), SqlRuleAction("SET urgent = TRUE; REMOVE color")),
        )
        publish(rig, "a", color="red")
        found = rig.claim(both, 10, lock=False)
        assert bodies(found) == ["a", "a"]
        assert [headers(each) for each in found] == [{"color": "red"}, {"urgent": True}]

    def test_a_copy_that_an_action_changed_lives_as_long_as_the_others(self, rig: Rig) -> None:
        """A dead-lettered message does not expire, with any time-to-live; a forward may shorten the time-to-live."""
        rig.topic("t")
        plain = rig.subscription("t", "plain", default_ttl=None)
        changed = ruled(rig, "changed", Rule("r", TrueFilter(), stamp("seen")), default_ttl=None)
        span = SqlRuleAction("SET sys.TimeToLive = @span", {"@span": timedelta(seconds=7)})
        own = ruled(rig, "own", Rule("r", TrueFilter(), span), default_ttl=None)
        rig.queue("dying", forward_dead_letters_to="t")
        rig.queue("short", forward_to="t", default_ttl=5)
        rig.update("t", default_ttl=None)
        rig.run(lasting("dying", 60))
        rig.settle(DEAD_LETTER, rig.one("dying"))
        rig.run(lasting("short", 60))
        now_ns = rig.now_ns()
        assert [each.expires_ns for each in rig.peek(plain)] == [0, now_ns + 5 * SECOND]
        assert [each.expires_ns for each in rig.peek(changed)] == [0, now_ns + 5 * SECOND]
        assert [each.expires_ns for each in rig.peek(own)] == [now_ns + 7 * SECOND] * 2

    def test_an_action_with_a_forward_leaves_the_data_of_later_copies_alone(self, rig: Rig) -> None:
        """Each subscription stores the message with its own data, even if another one before it forwards it."""
        rig.topic("t")
        rig.topic("further")
        for name in ("audit", "late", "moved"):
            rig.queue(name)
        first = rig.subscription("t", "first")
        rig.subscription("further", "stamped", forward_to="late", rules=text_of([Rule("s", TrueFilter(), stamp("s"))]))
        deep = rig.subscription("further", "deep")
        ruled(
            rig, "changed", Rule("r", TrueFilter(), stamp("a")), Rule("q", TrueFilter(), stamp("b")), forward_to="audit"
        )
        plain = rig.subscription("t", "plain")
        rig.subscription("t", "chain", forward_to="further")
        rig.subscription("t", "moving", forward_to="moved")
        last = rig.subscription("t", "last")
        rig.run(*[sending("t", body, message_id=body) for body in ("one", "two")])
        everywhere = {name: bodies(rig.claim(name, 9)) for name in (first, plain, last, deep, "moved", "late", "audit")}
        both = ["one", "two"]
        assert everywhere == {
            **dict.fromkeys((first, plain, last, deep, "moved", "late"), both),
            "audit": ["one", "one", "two", "two"],
        }

    def test_rules_can_be_added_changed_and_taken_away(self, rig: Rig) -> None:
        rig.topic("t")
        path = rig.subscription("t", "s")
        rig.run(DropRule(path, DEFAULT_RULE))
        publish(rig, "no rule matches")
        rig.run(SetRule(path, Rule("r", sql("n = 1"))))
        publish(rig, "one", n=1)
        rig.run(SetRule(path, Rule("R", sql("n = 2")), update=True))
        publish(rig, "again", n=1)
        publish(rig, "two", n=2)
        assert rig.drain(path) == ["one", "two"]

    def test_a_change_that_cannot_be_made_changes_nothing(self, rig: Rig) -> None:
        rig.topic("t")
        rig.queue("q")
        path = ruled(rig, "s", Rule("r", sql("n = 1")))
        before = rig.picture()
        with pytest.raises(EntityExists):
            rig.run(SetRule(path, Rule("R", TrueFilter())))
        for command in (SetRule(path, Rule("x", TrueFilter()), update=True), DropRule(path, "x"), DropRule("q", "r")):
            with pytest.raises(EntityNotFound):
                rig.run(command)
        with pytest.raises(UsageError):
            rig.run(SetRule(path, Rule("x", TrueFilter())), DropRule(path, "r"))
        with pytest.raises(UsageError):
            rig.queue("other", rules="[]")
        assert rig.picture() == before

    def test_rules_that_are_none(self, rig: Rig) -> None:
        from unibus.core.lifecycle.state.settings import checked_settings

        for text in (
            "{}",
            "[1]",
            '[{"name":"a"}]',
            '[{"name":"a","filter":{"kind":"sql","expression":"=="}}]',
            '[{"name":"a","filter":{"kind":"true"}},{"name":"A","filter":{"kind":"true"}}]',
            '[{"name":"-","filter":{"kind":"true"}}]',
        ):
            with pytest.raises(UsageError):
                checked_settings({"rules": text})
        with pytest.raises(ConfigInvalid):
            checked_settings({"filter_mode": "strict"})

    def test_a_rule_without_an_answer_makes_a_dead_letter_or_nothing(self, rig: Rig) -> None:
        rig.topic("t")
        broken = Rule("broken", sql("10 / n > 1"))
        strict = ruled(rig, "strict", broken)
        quiet = ruled(rig, "quiet", broken, dead_letter_on_filter_error=False)
        publish(rig, "zero", n=0)
        publish(rig, "two", n=2)
        assert rig.drain(strict) == rig.drain(quiet) == ["two"]
        [message] = rig.dead(strict)
        assert message.headers["DeadLetterReason"] == "FilterEvaluationException"
        assert rig.peek(sub_queue(quiet)) == []

    def test_only_who_gets_a_message_needs_room_for_it(self, rig: Rig) -> None:
        rig.topic("t")
        ruled(rig, "small", Rule("r", sql("n = 1")), max_count=1)
        publish(rig, "a", n=1)
        publish(rig, "b", n=2)
        before = rig.picture()
        with pytest.raises(QuotaExceeded):
            publish(rig, "c", n=1)
        assert rig.picture() == before
        marked = Rule("marked", sql("n = 3"), SqlRuleAction("SET again = TRUE"))
        twice = ruled(rig, "twice", Rule("plain", sql("n = 3")), marked, max_count=1)
        with pytest.raises(QuotaExceeded):
            publish(rig, "d", n=3)
        assert rig.peek(twice) == []

    def test_a_scheduled_message_is_judged_when_its_time_comes(self, rig: Rig) -> None:
        rig.topic("t")
        path = ruled(rig, "s", Rule("r", sql("n = 1")))
        publish(rig, "later", rig.now_ns() + 10 * SECOND, n=2)
        publish(rig, "now", n=2)
        rig.run(SetRule(path, Rule("r", sql("n = 2")), update=True))
        rig.advance(20)
        assert rig.drain(path) == ["later"]

    def test_what_is_moved_into_a_topic_is_judged_too(self, rig: Rig) -> None:
        rig.topic("t")
        rig.queue("q")
        dead = ruled(rig, "dead", Rule("r", sql("DeadLetterReason = 'Broken'")))
        rig.send("q", "x")
        rig.settle(DEAD_LETTER, rig.one("q"), reason="Broken")
        rig.run(Move(sub_queue("q"), 1, "t"))
        assert rig.drain(dead) == ["x"]

    def test_a_move_that_no_rule_takes_is_refused(self, rig: Rig) -> None:
        """Also after a forward. The message is not moved, not even in a batch with others."""
        rig.topic("t")
        rig.topic("further")
        ruled(rig, "dead", Rule("r", sql("DeadLetterReason = 'Broken'")))
        ruled(rig, "on", Rule("r", sql("DeadLetterReason = 'Other'")), forward_to="further")
        rig.queue("q")
        rig.queue("to t", forward_to="t")
        rig.fill("q", "xyz")
        for reason in ("Fine", "Other", "Broken"):
            rig.settle(DEAD_LETTER, rig.one("q"), reason=reason)
        before = rig.picture()
        for sequence, target in ((1, "t"), (1, "to t"), (1, "further"), (2, "t"), (2, "to t")):
            for raises in (True, False):
                move = Move(sub_queue("q"), sequence, target)
                move.raises = raises
                with pytest.raises(UsageError):
                    rig.run(sending("q", "with it"), move)
        assert rig.picture() == before
        rig.run(Move(sub_queue("q"), 3, "to t"))
        assert rig.drain("t/Subscriptions/dead") == ["z"]

    def test_what_a_topic_kept_is_judged_by_the_first_subscription(self, rig: Rig) -> None:
        rig.topic("t", keeps=True)
        publish(rig, "a", n=1)
        publish(rig, "b", n=2)
        path = ruled(rig, "s", Rule("r", sql("n = 2")))
        assert rig.drain(path) == ["b"]

    def test_the_past_of_a_topic_is_judged_too(self, rig: Rig) -> None:
        rig.topic("t")
        publish(rig, "a", n=1)
        publish(rig, "b", n=2)
        path = "t/Subscriptions/s"
        declare = Declare(path, SUBSCRIPTION, {"rules": text_of([Rule("r", sql("n = 2"))])})
        assert rig.store.subscribe_from(declare, 0, 0).wait() == 1
        assert rig.drain(path) == ["b"]

    def test_text_and_numbers_meet_where_a_subscription_is_lenient(self, rig: Rig) -> None:
        rig.topic("t")
        strict = ruled(rig, "strict", Rule("r", sql("n = 1")))
        lenient = ruled(rig, "lenient", Rule("r", sql("n = 1")), filter_mode="lenient")
        publish(rig, "text", n="1")
        assert (rig.drain(strict), rig.drain(lenient)) == ([], ["text"])
