"""Random entities, rules and messages: drawn for the model, and turned into what a store takes."""

from dataclasses import replace
from random import Random
from typing import Final, TypeVar

from unibus.core.envelope.message import restored
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.commands import Send
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.changes import Settings
from unibus.core.lifecycle.state.entity import QUEUE, SUBSCRIPTION, TOPIC
from unibus.core.lifecycle.state.rules import Rule, text_of
from unibus.testing.model import (
    DEFAULT,
    SECOND,
    Adds,
    Always,
    Both,
    Compares,
    Correlates,
    Divides,
    ModelCondition,
    ModelEither,
    ModelIsNull,
    ModelNot,
    ModelRule,
    ModelRules,
    ModelSend,
    ModelStatement,
    Never,
    Removes,
    Sets,
    SetsCorrelation,
    SetsQuotient,
    SetsSession,
    Value,
)

QUEUES: Final = ("q0", "q1", "q2", "q3")
TOPICS: Final = ("t0", "t1")
PARTS: Final = ("a", "b", "c")
SUBSCRIPTIONS: Final = tuple(f"{topic}/Subscriptions/{part}" for topic in TOPICS for part in PARTS)
NAMES: Final = (*QUEUES, *TOPICS, *SUBSCRIPTIONS)  # In an order in which they can be made.
RANKS: Final = ("q0", "t0", "q1", "t1", "q2", "q3")
TARGETS: Final = (*RANKS, SUBSCRIPTIONS[0], sub_queue("q0"), "missing")
COLORS: Final = ("red", "blue", 7)
RULE_NAMES: Final = ("r0", "r1", "r2")

T = TypeVar("T")


def some(chance: Random, value: T, share: float, other: T) -> T:
    return value if chance.random() < share else other


# Entities


def topology(chance: Random) -> dict[str, ModelRules]:
    """About two thirds of the names that there are. A subscription needs its topic."""
    names = [name for name in NAMES if chance.random() < 0.7]
    topics = [name for name in names if name in TOPICS]
    return {name: entity(chance, name) for name in names if name not in SUBSCRIPTIONS or topic_of(name) in topics}


def topic_of(name: str) -> str:
    return name.partition("/Subscriptions/")[0]


def kind_of(name: str) -> int:
    return TOPIC if name in TOPICS else SUBSCRIPTION if name in SUBSCRIPTIONS else QUEUE


def entity(chance: Random, name: str) -> ModelRules:
    drawn = ModelRules(
        lock_ns=10 * SECOND,
        deliveries_max=chance.randint(1, 3),
        ttl_ns=chance.choice((0, 0, 0, 30, 40)) * SECOND,
        dead_letters_expired=chance.random() < 0.5,
        by_priority=chance.random() < 0.5,
        count_max=some(chance, chance.randint(1, 3), 0.3, 0),
    )
    if name in TOPICS:
        drawn = replace(drawn, is_topic=True, keeps=chance.random() < 0.3)
    else:
        forward = some(chance, target(chance, name), 0.5 if name in SUBSCRIPTIONS else 0.4, "")
        dead = some(chance, target(chance, name), 0.5, "")
        drawn = replace(drawn, by_session=chance.random() < 0.2, forward_to=forward, dead_letters_to=dead)
    if name in SUBSCRIPTIONS:
        return replace(drawn, rules=rules(chance), dead_letters_unanswered=chance.random() < 0.7)
    return replace(drawn, window_ns=20 * SECOND, knows_ids=True) if chance.random() < 0.2 else drawn


def target(chance: Random, name: str) -> str:
    """Mostly one that comes later, so that not most messages end in a cycle; now and then any, or none that exists."""
    later = RANKS[RANKS.index(topic_of(name)) + 1 :]
    return chance.choice(TARGETS if chance.random() < 0.15 else (*later, ""))


def changed(chance: Random, name: str, before: ModelRules) -> ModelRules:
    """Other settings, but for those that cannot change, and for the dedup window: a longer one does not bring keys back
    that a shorter one has forgotten."""
    drawn = replace(
        entity(chance, name), by_session=before.by_session, knows_ids=before.knows_ids, window_ns=before.window_ns
    )
    status = chance.choice(("active", "active", "disabled", "send_disabled", "receive_disabled"))
    allowed = status not in (
        "send_disabled" if name in SUBSCRIPTIONS else "",
        "receive_disabled" if name in TOPICS else "",
    )
    return replace(drawn, status=status if allowed else "active")


def settings_of(rules: ModelRules, kind: int) -> Settings:
    given: Settings = {
        "lock_duration": rules.lock_ns / 1e9,
        "max_delivery_count": rules.deliveries_max,
        "default_ttl": rules.ttl_ns / 1e9 if rules.ttl_ns else None,
        "dedup_window": rules.window_ns / 1e9 if rules.knows_ids else None,
        "ordering": "priority" if rules.by_priority else "sequence",
        "requires_session": rules.by_session,
        "dead_letter_on_expiration": rules.dead_letters_expired,
        "max_count": rules.count_max,
        "status": rules.status,
        "forward_to": rules.forward_to or None,
        "forward_dead_letters_to": rules.dead_letters_to or None,
        "keeps": rules.keeps,
    }
    if kind == SUBSCRIPTION:
        given["dead_letter_on_filter_error"] = rules.dead_letters_unanswered
        given["rules"] = None if rules.rules == (DEFAULT,) else text_of([stored_rule(rule) for rule in rules.rules])
    return given


# Rules


def rules(chance: Random) -> tuple[ModelRule, ...]:
    if chance.random() < 0.3:
        return (DEFAULT,)
    return tuple(rule(chance, name) for name in RULE_NAMES if chance.random() < 0.6)


def rule(chance: Random, name: str) -> ModelRule:
    count = chance.choice((0, 0, 1, 1, 2))
    return ModelRule(name, condition(chance), tuple(statement(chance) for _ in range(count)))


def condition(chance: Random) -> ModelCondition:
    shape = chance.randrange(9)
    if shape < 2:
        return Always() if chance.random() < 0.8 else Never()
    if shape == 2:
        properties = (("color", chance.choice(COLORS)),) if chance.random() < 0.5 else ()
        return Correlates(chance.choice(("c1", "c2")), properties)
    if shape == 3:
        return Divides(6, "d")
    if shape == 4:
        return ModelNot(comparison(chance))
    if shape == 5:
        return Both(comparison(chance), comparison(chance))
    return ModelEither(comparison(chance), comparison(chance)) if shape == 6 else comparison(chance)


def comparison(chance: Random) -> ModelCondition:
    shape = chance.randrange(5)
    if shape < 2:
        return Compares("color", chance.choice(("=", "<>")), chance.choice(COLORS))
    return (
        ModelIsNull(chance.choice(("color", "n")))
        if shape == 2
        else Compares("n", chance.choice("<>="), chance.randrange(4))
    )


def statement(chance: Random) -> ModelStatement:
    shape = chance.randrange(8)
    if shape < 2:
        return Sets("color", chance.choice(COLORS))
    if shape < 4:
        return Adds("n")
    if shape == 4:
        return Removes(chance.choice(("color", "n")))
    if shape == 5:
        return SetsQuotient("part", 6, "d")
    if shape == 6:
        return SetsSession(chance.choice(("x", "y", None)))
    return SetsCorrelation(chance.choice(("c1", "c2", None)))


def stored_rule(rule: ModelRule) -> Rule:
    action = "; ".join([each.sql for each in rule.action])
    return Rule(rule.name, stored_filter(rule.condition), SqlRuleAction(action) if action else None)


def stored_filter(condition: ModelCondition) -> Filter:
    if isinstance(condition, Always):
        return TrueFilter()
    if isinstance(condition, Never):
        return FalseFilter()
    if isinstance(condition, Correlates):
        return CorrelationFilter(condition.correlation, dict(condition.properties))
    return SqlFilter(condition.sql)


# Messages


def headers(chance: Random) -> dict[str, Value]:
    drawn: dict[str, Value] = {}
    if chance.random() < 0.6:
        drawn["color"] = chance.choice(COLORS)
    if chance.random() < 0.6:
        drawn["n"] = chance.randrange(4)
    if chance.random() < 0.5:
        drawn["d"] = chance.randrange(4)
    return drawn


def random_send(chance: Random, text: str, now_ns: int) -> ModelSend:
    # No two become visible at one instant: which of them would be the first elsewhere is not promised.
    delay_ns = chance.choice((0, 0, 0, 5, 15)) * SECOND
    visible_ns = now_ns + delay_ns + chance.randrange(1, 1_000_000_000) if delay_ns else 0
    return ModelSend(
        text,
        chance.choice((0, 50, 50, 200)),
        chance.choice((None, "x", "y")),
        chance.choice((0, 0, 5, 25)) * SECOND,
        visible_ns,
        chance.choice((None, None, None, "k1", "k2")),
        headers(chance),
        chance.choice((None, "c1", "c2")),
        chance.choice(("", "", "", "id1", "id2")),
    )


def stored_send(name: str, sent: ModelSend) -> Send:
    message = restored(sent.id or sent.text, name, sent.text, 1, None).with_priority(sent.priority)
    fields: dict[str, object] = {"headers": dict(sent.headers)}
    if sent.session is not None:
        fields["session_id"] = sent.session
    if sent.correlation is not None:
        fields["correlation_id"] = sent.correlation
    if sent.key is not None:
        fields["dedup_key"] = sent.key
    if sent.ttl_ns:
        fields["ttl"] = sent.ttl_ns / SECOND
    command = send_of(message.with_fields(fields), name)
    command.visible_ns = sent.visible_ns
    return command
