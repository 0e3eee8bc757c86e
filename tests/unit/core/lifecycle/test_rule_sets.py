"""One rule of many changes: the others are kept as objects, with their compiled filters. Counted, not timed."""

from pathlib import Path

import pytest

from unibus.bus.api.broker import Broker
from unibus.bus.api.message_bus import MessageBus
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import AZURE, LENIENT, CorrelationFilter, SqlFilter, TrueFilter
from unibus.core.lifecycle.state.rules import DEFAULT_RULE, Rule, RuleSet, rule_set_of, rules_of, text_of
from unibus.errors import ConfigInvalid
from unibus.limits import RULES_PER_SUBSCRIPTION_MAX

PATH = "t/Subscriptions/s"
MANY = 60


def numbered(number: int) -> Rule:
    return Rule(f"r{number}", SqlFilter(f"n = {number}"), SqlRuleAction(f"SET seen = {number}"))


def many() -> RuleSet:
    return rule_set_of(text_of([numbered(each) for each in range(MANY)]), AZURE)


def read_again(before: RuleSet, after: RuleSet) -> list[str]:
    """The names of the rules that the later set does not share with the earlier one."""
    kept = {id(rule) for rule in before.rules}
    return [rule.name for rule in after.rules if id(rule) not in kept]


# The set


def test_a_changed_rule_is_the_only_one_that_is_read_again() -> None:
    before = many()
    changed = Rule("R7", SqlFilter("n = 700"))
    after = rule_set_of(before.text_with(changed), AZURE, None, before)
    assert read_again(before, after) == ["R7"]
    assert [rule.name for rule in after.rules[6:9]] == ["r6", "R7", "r8"]
    assert after.rules == rules_of(after.text, AZURE)


def test_a_new_rule_comes_last_and_a_deleted_one_is_gone() -> None:
    before = many()
    longer = rule_set_of(before.text_with(numbered(MANY)), AZURE, None, before)
    assert (read_again(before, longer), longer.rules[-1].name) == ([f"r{MANY}"], f"r{MANY}")
    shorter = rule_set_of(longer.text_without("R0"), AZURE, None, longer)
    assert (read_again(longer, shorter), len(shorter.rules), shorter.find("r0")) == ([], MANY, None)
    assert shorter.text == text_of(shorter.rules)


def test_another_mode_compiles_all_of_them() -> None:
    before = many()
    assert len(read_again(before, rule_set_of(before.text, LENIENT, None, before))) == MANY


def test_a_text_in_another_form_is_read_as_it_is() -> None:
    text = '[ {"filter": {"kind": "true"}, "name": "a"} ,\n {"name": "b", "filter": {"kind": "false"}} ]'
    before = rule_set_of(text, AZURE)
    after = rule_set_of(before.text_with(Rule("c", TrueFilter())), AZURE, None, before)
    assert (read_again(before, after), [rule.name for rule in after.rules]) == (["c"], ["a", "b", "c"])


@pytest.mark.parametrize("text", ["{}", "[1]", "[{]", '["a"]', "nothing", '[{"name":"a"},{"name":"A"}]'])
def test_what_is_no_list_of_rules_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        rule_set_of(text, AZURE)


def test_there_is_a_bound() -> None:
    full = rule_set_of(text_of([Rule(f"r{each}", TrueFilter()) for each in range(RULES_PER_SUBSCRIPTION_MAX)]), AZURE)
    with pytest.raises(ConfigInvalid):
        rule_set_of(full.text_with(Rule("more", TrueFilter())), AZURE, None, full)


def test_without_a_setting_there_is_the_default_rule() -> None:
    found = rule_set_of(None, AZURE)
    assert [rule.name for rule in found.rules] == [DEFAULT_RULE]
    both = rule_set_of(found.text_with(Rule("other", CorrelationFilter("c"))), AZURE, None, found)
    assert ([rule.name for rule in both.page(0, 5)], both.correlations) == ([DEFAULT_RULE, "other"], 1)


def test_what_is_given_out_is_a_copy() -> None:
    found = many()
    [first] = found.page(0, 1)
    first.name = "mine"
    assert found.page(0, 1)[0].name == "r0"


# In a store


async def filled(bus: MessageBus) -> Broker:
    broker = Broker(bus)
    await broker.create("topic", "t")
    await broker.create("subscription", PATH, {"rules": [numbered(each) for each in range(MANY)]})
    return broker


async def rules_now(broker: Broker) -> RuleSet:
    found = await broker._store.catalog.rules(PATH)
    assert found is not None
    return found


async def test_a_store_keeps_the_rules_that_did_not_change() -> None:
    async with MessageBus() as bus:
        broker = await filled(bus)
        before = await rules_now(broker)
        await broker.update_rule(PATH, Rule("r3", SqlFilter("n = 3 OR n = 4")))
        await broker.create_rule(PATH, Rule("more", SqlFilter("n > 5")))
        await broker.delete_rule(PATH, "r0")
        after = await rules_now(broker)
        assert read_again(before, after) == ["r3", "more"]
        assert (await broker.rule(PATH, "R3")).condition is after.rules[2].condition


async def test_other_settings_change_neither_the_rules_nor_the_router() -> None:
    async with MessageBus() as bus:
        broker = await filled(bus)
        state = bus._runtime.queues().store.catalog._state  # type: ignore[attr-defined]
        topic = state.find("t")
        router, before = state.router(topic), await rules_now(broker)
        await broker.update(PATH, {"user_metadata": "x", "status": "disabled"})
        assert (state.router(topic) is router, await rules_now(broker) is before) == (True, True)
        await broker.update(PATH, {"filter_mode": LENIENT})
        assert state.router(topic) is not router
        await broker.delete_rule(PATH, "r1")
        assert len(state.router(topic)._index) == MANY - 1


async def test_recovery_compiles_no_rule(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"
    async with MessageBus(url) as bus:
        broker = await filled(bus)
        for each in range(MANY, MANY + 5):
            await broker.create_rule(PATH, numbered(each))
    async with MessageBus(url) as bus:
        broker = Broker(bus)
        assert bus._runtime.queues().store._state.find(PATH)._rules is None  # Read when they are needed.
        assert len((await rules_now(broker)).rules) == MANY + 5


async def test_a_topic_counts_rules_without_reading_them_again() -> None:
    async with MessageBus() as bus:
        broker = await filled(bus)
        await broker.create("subscription", "t/Subscriptions/other", {"rules": [Rule("c", CorrelationFilter("c"))]})
        before = await rules_now(broker)
        counted = await broker.rule_counts("T")
        assert (counted.subscriptions, counted.rules, counted.correlations) == (2, MANY + 1, 1)
        assert await rules_now(broker) is before
