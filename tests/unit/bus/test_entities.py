"""`bus.entities` of the async and the sync API: every method for queues, topics, subscriptions and rules."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.bus.rigs import Rig
from unibus import CorrelationFilter, EntityDisabled, FalseFilter, Rule, SqlFilter, SqlRuleAction, TrueFilter
from unibus.core.access.rules import AuthorizationRule, rules_of_text
from unibus.errors import ConfigInvalid, EntityExists, EntityNotFound, FilterInvalid, NameInvalid, UsageError
from unibus.limits import ACCESS_RULES_MAX


class Verbs:
    """`rig.bus.entities`, each method waited for as its API requires."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given, **named: self._rig.do(lambda: getattr(self._rig.bus.entities, name)(*given, **named))


@pytest.fixture
def verbs(rig: Rig) -> Verbs:
    return Verbs(rig)


def names(infos: list[Any]) -> list[str]:
    return [info.name for info in infos]


def access_rule(name: str) -> AuthorizationRule:
    return AuthorizationRule.generated(name, ["Send"], bytes(range(64)))


def test_entities_are_made_found_changed_and_deleted(rig: Rig, verbs: Verbs) -> None:
    verbs.create_queue("orders", lock_duration=5, user_metadata="of the shop")
    verbs.create_topic("news", enable_express=True)
    verbs.create_subscription("news", "one", max_delivery_count=3)
    assert names(rig.entities()) == ["news", "news/Subscriptions/one", "orders"]
    info = verbs.get("ORDERS")
    assert (info.name, info.kind, info.settings["lock_duration"]) == ("orders", "queue", 5)
    assert info.settings["user_metadata"] == "of the shop"
    assert verbs.get("news").settings["enable_express"] is True
    verbs.update("orders", lock_duration=7)
    assert verbs.get("orders").settings["lock_duration"] == 7
    assert (verbs.exists("Orders"), verbs.exists("other")) == (True, False)
    verbs.delete("orders")
    assert not verbs.exists("orders")
    with pytest.raises(EntityNotFound):
        verbs.get("orders")
    with pytest.raises(EntityExists):
        verbs.create_topic("news", default_ttl=5)


def test_the_moments_of_an_entity_are_datetimes(rig: Rig, verbs: Verbs) -> None:
    verbs.create_queue("q")
    info = verbs.get("q")
    assert info.created_at == info.updated_at
    assert info.created_at.utcoffset().total_seconds() == 0
    verbs.update("q", max_count=3)
    changed = verbs.get("q")
    assert (changed.created_at, changed.updated_at > changed.created_at) == (info.created_at, True)
    assert changed.accessed_at >= changed.updated_at


def test_moments_outlive_the_bus(rig: Rig, verbs: Verbs) -> None:
    verbs.create_queue("q")
    before = verbs.get("q")
    rig.reopen()
    if rig.durable:
        after = verbs.get("q")
        assert (after.created_ns, after.updated_ns, after.accessed_at) == (before.created_ns, before.updated_ns, None)


def test_lists_have_pages_in_the_order_of_names(verbs: Verbs) -> None:
    for name in ("b", "C", "a"):
        verbs.create_queue(name)
    verbs.create_topic("t")
    verbs.create_topic("t-other")
    for name in ("y", "x"):
        verbs.create_subscription("t", name)
    verbs.create_subscription("t-other", "z")
    assert names(verbs.list("queue")) == ["a", "b", "C"]
    assert names(verbs.list("topic")) == ["t", "t-other"]
    assert names(verbs.list(topic="T")) == ["t/Subscriptions/x", "t/Subscriptions/y"]
    assert names(verbs.list("queue", start=1, top=1)) == ["b"]
    everything = names(verbs.list())
    pages = [name for start in range(0, 10, 3) for name in names(verbs.list(start=start, top=3))]
    assert (pages, len(pages)) == (everything, 8)
    assert names(verbs.list(start=100)) == []


def test_dead_letter_queues_are_listed_where_they_are_asked_for(rig: Rig, verbs: Verbs) -> None:
    verbs.create_topic("t")
    verbs.create_subscription("t", "s")
    rig.take("t/Subscriptions/s/$DeadLetterQueue")
    assert names(verbs.list()) == ["t", "t/Subscriptions/s"]
    assert names(verbs.list(topic="t")) == ["t/Subscriptions/s"]
    assert names(verbs.list("dead-letter queue")) == ["t/Subscriptions/s/$DeadLetterQueue"]


@pytest.mark.parametrize("given", [{"start": -1}, {"top": 0}, {"kind": "channel"}])
def test_a_list_that_makes_no_sense_is_refused(verbs: Verbs, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        verbs.list(**given)


def test_the_subscriptions_of_a_topic_that_is_none(verbs: Verbs) -> None:
    with pytest.raises(EntityNotFound):
        verbs.list(topic="nowhere")


def test_rules_are_made_found_changed_and_deleted(rig: Rig, verbs: Verbs) -> None:
    verbs.create_topic("t")
    verbs.create_subscription("t", "s")
    assert verbs.rules("t", "s") == [Rule("$Default", TrueFilter())]
    verbs.delete_rule("t", "s", "$Default")
    verbs.create_rule("t", "s", "red", "color = 'red'", "SET seen = TRUE")
    verbs.create_rule("t", "s", "Key", CorrelationFilter("c-1"))
    assert [rule.name for rule in verbs.rules("t", "s")] == ["Key", "red"]
    assert [rule.name for rule in verbs.rules("t", "s", 1, 1)] == ["red"]
    found = verbs.get_rule("t", "s", "RED")
    assert found == Rule("red", SqlFilter("color = 'red'"), SqlRuleAction("SET seen = TRUE"))
    assert found.created_ns > 0
    verbs.update_rule("t", "s", "red", FalseFilter())
    assert verbs.get_rule("t", "s", "red") == Rule("red", FalseFilter())
    assert verbs.get_rule("t", "s", "red").created_ns == found.created_ns
    rig.send("t", "a", headers={"color": "red"})
    rig.send("t", "b", correlation_id="c-1")
    assert [message.body for message in rig.take("t/Subscriptions/s", 5)] == ["b"]


def test_an_error_names_what_is_wrong_with_a_rule(verbs: Verbs) -> None:
    verbs.create_topic("t")
    verbs.create_subscription("t", "s")
    with pytest.raises(FilterInvalid):
        verbs.create_rule("t", "s", "r", "color ==")
    with pytest.raises(NameInvalid):
        verbs.create_rule("t", "s", "no/name", "1 = 1")
    with pytest.raises(UsageError):
        verbs.create_rule("t", "s", "r", 5)
    with pytest.raises(UsageError):
        verbs.create_rule("t", "s", "r", "1 = 1", 5)
    with pytest.raises(EntityNotFound):
        verbs.get_rule("t", "s", "r")
    with pytest.raises(EntityNotFound):
        verbs.update_rule("t", "s", "r", "1 = 1")
    with pytest.raises(EntityNotFound):
        verbs.rules("t", "other")
    with pytest.raises(EntityExists):
        verbs.create_rule("t", "s", "$Default", "1 = 1")
    assert [rule.name for rule in verbs.rules("t", "s")] == ["$Default"]


def test_a_subscription_can_be_made_with_its_rules(verbs: Verbs) -> None:
    verbs.create_topic("t")
    verbs.create_subscription("t", "s", rules=[Rule("only", SqlFilter("n = 1"))])
    assert [rule.name for rule in verbs.rules("t", "s")] == ["only"]


def test_a_disabled_queue_says_so_and_waiting_receivers_fail(rig: Rig, verbs: Verbs) -> None:
    verbs.create_queue("q", status="send_disabled")
    with pytest.raises(EntityDisabled, match="send_disabled"):
        rig.send("q", 1)
    verbs.update("q", status="disabled")
    with pytest.raises(EntityDisabled):
        rig.take("q", timeout=60)
    verbs.update("q", status="active")
    rig.send("q", 1)
    assert rig.one("q").body == 1


def test_keys_are_kept_and_never_shown(verbs: Verbs) -> None:
    rules = [access_rule("sender"), access_rule("other")]
    verbs.create_queue("q", authorization_rules=rules)
    info = verbs.get("q")
    assert rules_of_text(info.settings["authorization_rules"]) == tuple(rules)
    assert rules[0].primary_key not in repr(info)
    for wrong in (
        [access_rule(f"r{number}") for number in range(ACCESS_RULES_MAX + 1)],
        [access_rule("a"), access_rule("A")],
        [{**access_rule("a").as_dict(), "primary_key": "short"}],
        [rules[0].primary_key],
        rules[0].primary_key,
        f'[{{"name": "{rules[0].primary_key}"',
        5,
    ):
        with pytest.raises(ConfigInvalid) as caught:
            verbs.update("q", authorization_rules=wrong)
        assert rules[0].primary_key not in str(caught.value)
        assert caught.value.__cause__ is None
    verbs.update("q", authorization_rules=None)
    assert verbs.get("q").settings["authorization_rules"] is None


def test_names_follow_azure(verbs: Verbs) -> None:
    for name in ("a b", "-a", "a-", "a//b", "/a", "a/", "é", "a?", "x" * 261, "a/$x"):
        with pytest.raises(NameInvalid):
            verbs.create_queue(name)
    verbs.create_topic("a.b_c-d/e")
    for name in ("x" * 51, "a/b", "a b", "-a", "", "subscriptions"):
        with pytest.raises(NameInvalid):
            verbs.create_subscription("a.b_c-d/e", name)
    verbs.create_subscription("a.b_c-d/e", "x" * 50)
    verbs.create_queue("a" * 260)
    assert len(verbs.list()) == 3


def test_a_feed_goes_on_when_its_subscription_is_active_again(rig: Rig, verbs: Verbs) -> None:
    if not rig.durable:
        pytest.skip("a feed needs a durable channel")
    got: list[object] = []
    rig.create_channel("c", persistent=True)
    rig.do(lambda: rig.bus.subscribe("c", lambda message: got.append(message.body), group="g"))
    (path,) = names(verbs.list("subscription"))
    verbs.update(path, status="disabled")
    rig.publish("c", 1)
    assert verbs.get(path).active == 1
    verbs.update(path, status="active")
    assert rig.drain(5)
    assert got == [1]
