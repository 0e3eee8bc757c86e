"""Random rules on random subscriptions of a real store give what asking each filter alone gives, copy for copy.

The store finds out by an index over the rules of all subscriptions; the expectation here never heard of one. Rules go
the whole way: as a setting, as text, parsed again in the mode of their subscription, and changed between two messages.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crash.power import StillTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.core.codec.codec import decode, encode
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import HeaderValue, Int32
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import CorrelationFilter, Filter, SqlFilter
from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.commands import Declare, Send
from unibus.core.lifecycle.envelope import message_of
from unibus.core.lifecycle.state.changes import MessageRef
from unibus.core.lifecycle.state.entity import SUBSCRIPTION, TOPIC
from unibus.core.lifecycle.state.rules import Rule
from unibus.core.lifecycle.state.settings import checked_settings
from unibus.errors import EvaluationError
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal

# A small world, so that most rules have something to say about most messages. What filters of any shape say is tested
# where filters are; here it matters who is asked, and what becomes of the answers.
NAMES = ["color", "Color", "n"]
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
VALUES: list[HeaderValue] = ["red", "5", 5, 5.0, 5.0, Int32(5), Decimal("5"), 0, True, NOON, math.nan, None]
NUMBERS: list[HeaderValue] = [0, 0, Int32(0), 5, 5.0, "5", None]
CONDITIONS = [
    "{0} = @a",
    "@b = {1}",
    "{0} = @a OR {1} = @b",
    "{0} = @a AND {1} = @b",
    "{0} = @a AND NOT {1} = @b",
    "{0} IN (@a, @b)",
    "{0} IN (@a, 'red') AND sys.Label = 'red'",
    "sys.Label = 'red' OR {0} = @a",
    "{0} = @a AND 10 / n > 1",
    "10 / n > 1",
    "10 % n = 0",
    "n > @a",
    "{0} LIKE 'r%'",
    "{0} IS NULL OR {1} = @b",
    "NOT EXISTS({0})",
    "1 = 1",
    "1 = 0",
]
ACTIONS = [
    None,
    None,
    "SET marked = TRUE",
    "SET n = n + 1; REMOVE color",
    "SET n = 10 / n",  # Fails for 0, and for what is no number it is NULL.
    "SET sys.Label = color; SET sys.CorrelationId = 'c'",
    "SET sys.MessageId = 'another'",
]


@dataclass(frozen=True)
class Recipe:
    """A rule before the mode is known. Without a condition its properties have to equal the values."""

    condition: str | None
    names: tuple[str, str]
    values: tuple[HeaderValue, HeaderValue]
    action: str | None

    def made(self, name: str, mode: str) -> Rule:
        return Rule(name, self._filter(mode), None if self.action is None else SqlRuleAction(self.action, None, mode))

    def _filter(self, mode: str) -> Filter:
        if self.condition is None:
            return CorrelationFilter(properties=dict(zip(self.names, self.values, strict=True)), mode=mode)
        a, b = self.values
        return SqlFilter(self.condition.format(*self.names), {"a": a, "b": b}, mode)


@dataclass(frozen=True)
class Plan:
    """A subscription: its rules at first and later, and its other settings."""

    first: list[Recipe]
    later: list[Recipe]
    mode: str
    tells: bool

    def rules(self, changed: bool) -> list[Rule]:
        recipes = self.later if changed else self.first
        return [recipe.made(f"r{at}", self.mode) for at, recipe in enumerate(recipes)]


names, values = st.sampled_from(NAMES), st.sampled_from(VALUES)
recipes = st.builds(
    Recipe,
    st.sampled_from([None, *CONDITIONS]),
    st.tuples(names, names),
    st.tuples(values, values),
    st.sampled_from(ACTIONS),
)
messages = st.builds(
    lambda headers, subject: Message.new("t", "body").with_fields({"headers": headers, "subject": subject}),
    st.fixed_dictionaries(
        {"color": values, "n": st.sampled_from(NUMBERS)},
        optional={"Color": values},
    ),
    st.sampled_from([None, "red"]),
)
some_rules = st.lists(recipes, min_size=2, max_size=8) | st.just([])
plans = st.builds(Plan, some_rules, some_rules, st.sampled_from(["azure", "lenient"]), st.booleans())


def expected(rules: Sequence[Rule], message: Message) -> tuple[list[Message], bool]:
    """The copies in the order of the rules, and whether some rule has no answer. One rule after the other."""
    copies: list[Message] = []
    plain = failed = False
    for rule in rules:
        try:
            if not rule.condition.matches(message):
                continue
            if rule.action is not None:
                copies.append(rule.action.apply(message))
            elif not plain:
                plain = True
                copies.append(message)
        except EvaluationError:
            failed = True
    return copies, failed


def seen(message: Message) -> tuple[object, ...]:
    """All that a rule could change, with its type."""
    headers = [(name, type(value), repr(value)) for name, value in message.headers.items()]
    return message.id, message.body, message.subject, message.correlation_id, headers


def path(at: int) -> str:
    return f"t/Subscriptions/s{at}"


class Topic:
    """A topic of a real store, and what should be in its subscriptions."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.store = EmbeddedStore(MemoryJournal(), SYSTEM_CLOCK, StillTimers())
        self.plans = plans
        self.wanted: list[list[tuple[object, ...]]] = [[] for _ in plans]
        self.dead: list[list[str]] = [[] for _ in plans]
        self.store.apply([Declare("t", TOPIC, {})]).wait()

    def declare(self, changed: bool) -> None:
        for at, plan in enumerate(self.plans):
            given: dict[str, object] = {"rules": plan.rules(changed)}
            if not changed:
                given |= {"filter_mode": plan.mode, "dead_letter_on_filter_error": plan.tells}
            self.store.apply([Declare(path(at), SUBSCRIPTION, checked_settings(given), changed)]).wait()

    def publish(self, message: Message, changed: bool) -> None:
        data = encode(message)
        self.store.apply([Send("t", MessageRef(message.id, len(data)), data, message.priority)]).wait()
        for at, plan in enumerate(self.plans):
            copies, failed = expected(plan.rules(changed), decode(data))
            self.wanted[at] += [seen(copy) for copy in copies]
            if failed and plan.tells:
                self.dead[at].append(message.id)

    def check(self) -> None:
        for at in range(len(self.plans)):
            assert [seen(each) for each in self.held(path(at))] == self.wanted[at]
            letters = self.held(sub_queue(path(at)))
            assert [letter.id for letter in letters] == self.dead[at]
            assert {letter.headers["DeadLetterReason"] for letter in letters} <= {"FilterEvaluationException"}

    def held(self, entity: str) -> list[Message]:
        return [message_of(claimed) for claimed in self.store.peek(entity, 0, 1_000).wait()]


@settings(deadline=None)
@given(
    st.lists(plans, min_size=1, max_size=5),
    st.lists(messages, min_size=3, max_size=8),
    st.lists(messages, max_size=5),
)
def test_a_store_judges_as_each_filter_alone_does(
    plans: list[Plan], first: list[Message], later: list[Message]
) -> None:
    topic = Topic(plans)
    for changed, some in ((False, first), (True, later)):
        topic.declare(changed)
        for message in some:
            topic.publish(message, changed)
    topic.check()
    topic.store.close()
