"""Filters against three-valued logic written out plainly, printing against reading, the index against evaluating
all."""

import decimal
import math
import operator
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import Int32
from unibus.core.filters import tree
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import CorrelationFilter, Filter, SqlFilter
from unibus.core.filters.index import FilterIndex
from unibus.core.filters.like import Likeness
from unibus.core.filters.parser import Parser, parse
from unibus.core.filters.printing import printed
from unibus.core.filters.tokens import tokenize
from unibus.errors import EvaluationError, FilterInvalid

# Few names and values, so that most filters have something to say about most messages.
NAMES = ["color", "Color", "n", "with space", "x]y", "and", "ünï", "p"]
SYSTEM = ["Label", "Subject", "MessageId", "DeliveryCount", "EnqueuedTimeUtc", "TimeToLive", "LockToken"]
TEXTS = ["red", "", "5", "5.0", "it's", "%", "a_b", "r%"]
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
VALUES: list[object] = [
    *TEXTS,
    0,
    5,
    -7,
    2**63 - 1,
    -(2**63),
    Int32(5),
    Int32(2**31 - 1),
    0.0,
    5.0,
    -2.5,
    1e308,
    math.nan,
    math.inf,
    Decimal("5.0"),
    Decimal("2.5"),
    Decimal("79228162514264337593543950335"),
    True,
    False,
    None,
    b"5",
    UUID(int=5),
    NOON,
    NOON + timedelta(days=1),
    timedelta(hours=1),
    timedelta(0),
]
PARAMETERS = {f"v{at}": value for at, value in enumerate(VALUES)}

constants = st.one_of(
    st.sampled_from(TEXTS).map(tree.text),
    st.sampled_from([0, 1, 5, -7, 2**63 - 1, -(2**63)]).map(tree.integer),
    st.sampled_from([0.0, 5.0, -2.5, 1e308, 5e-324]).map(tree.double),
    st.booleans().map(tree.boolean),
    st.just(tree.null()),
)
anything = st.one_of(
    st.text(max_size=8).map(tree.text),
    st.integers(-(2**63), 2**63 - 1).map(tree.integer),
    st.floats(allow_nan=False, allow_infinity=False).map(tree.double),
)
properties = st.one_of(
    st.sampled_from(NAMES).map(tree.Property),
    st.sampled_from(SYSTEM).map(lambda name: tree.Property(name, "sys")),
)
leaves = st.one_of(constants, properties, properties, st.sampled_from(sorted(PARAMETERS)).map(tree.Parameter), anything)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(tree.Sign, st.sampled_from("+-"), inner),
        st.builds(tree.Arithmetic, st.sampled_from("+-*/%"), inner, inner),
        inner.map(tree.PropertyCall),
    ),
    max_leaves=4,
)


places = st.one_of(properties, expressions.map(tree.PropertyCall))
patterns = st.one_of(
    st.text("rd%_e", max_size=5).map(tree.text), leaves.filter(lambda node: not isinstance(node, tree.Constant))
)
escapes = st.one_of(st.none(), st.sampled_from("!%_").map(tree.text), properties)
conditions = st.one_of(
    st.builds(tree.Comparison, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), expressions, expressions),
    st.builds(tree.IsNull, places, st.booleans()),
    st.builds(tree.Exists, places),
    st.builds(tree.In, expressions, st.lists(leaves, min_size=1, max_size=4).map(tuple), st.booleans()),
    st.builds(tree.Like, expressions, patterns, escapes, st.booleans()).filter(lambda node: readable(node)),
)
predicates = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.builds(tree.Not, inner),
        st.lists(inner, min_size=2, max_size=4).map(lambda terms: tree.And(tuple(terms))),
        st.lists(inner, min_size=2, max_size=4).map(lambda terms: tree.Or(tuple(terms))),
    ),
    max_leaves=6,
)
messages = st.builds(
    lambda headers, subject, ttl, count: message(headers, subject, ttl, count),
    st.dictionaries(st.sampled_from([*NAMES, "COLOR", "N"]), st.sampled_from(VALUES), max_size=6),
    st.sampled_from([None, *TEXTS]),
    st.sampled_from([None, 60]),
    st.sampled_from([0, 5]),
)


def readable(node: tree.Like) -> bool:
    """The reader refuses a constant pattern that ends with its constant escape character."""
    constant = isinstance(node.pattern, tree.Constant) and isinstance(node.escape, tree.Constant)
    return not constant or pieces(str(node.pattern.value), str(node.escape.value)) is not None  # type: ignore[union-attr]


def message(headers: dict[str, object], subject: str | None, ttl: float | None, count: int) -> Message:
    made = Message.new("c").with_fields({"headers": headers, "subject": subject, "ttl": ttl})
    made.delivery_count = count
    return made


# The reference: no classes, no shortcuts, in the words of the documents.

UNKNOWN = None


class Reference:
    """Evaluates a tree. `failed` says that some part, needed or not, has no value."""

    def __init__(self, message: Message, lenient: bool) -> None:
        self.message = message
        self.lenient = lenient
        self.failed = False

    def fail(self) -> None:
        self.failed = True

    def truth(self, node: tree.Predicate) -> bool | None:
        match node:
            case tree.Comparison():
                return self.compare(node.operator, self.value(node.left), self.value(node.right))
            case tree.Not():
                inner = self.truth(node.operand)
                return UNKNOWN if inner is UNKNOWN else not inner
            case tree.And():
                return self.conjunction([self.truth(term) for term in node.terms])
            case tree.Or():
                inner = self.conjunction([negated(self.truth(term)) for term in node.terms])
                return negated(inner)
            case tree.IsNull():
                return (self.value(node.operand) is None) != node.negated
            case tree.Exists():
                return self.exists(node.operand)
            case tree.In():
                value = self.value(node.operand)
                equal = [self.compare("=", value, self.value(choice)) for choice in node.choices]
                found = negated(self.conjunction([negated(one) for one in equal]))
                return negated(found) if node.negated else found
            case _:
                found = self.like(node)
                return negated(found) if node.negated else found

    def conjunction(self, truths: list[bool | None]) -> bool | None:
        if False in truths:
            return False
        return UNKNOWN if UNKNOWN in truths else True

    def value(self, node: tree.Expression) -> object:
        match node:
            case tree.Constant():
                return node.value
            case tree.Property():
                return self.property(node.scope == "sys", node.name)
            case tree.Parameter():
                return PARAMETERS[node.name]
            case tree.PropertyCall():
                named = self.named(node)
                return None if named is None else self.property(*named)
            case tree.Sign():
                return self.sign(node.operator, self.value(node.operand))
            case tree.Arithmetic():
                return self.arithmetic(node.operator, self.value(node.left), self.value(node.right))
            case _:
                raise AssertionError(node)

    def named(self, node: tree.PropertyCall) -> tuple[bool, str] | None:
        name = self.value(node.name)
        if name is not None and not isinstance(name, str):
            self.fail()
        return (False, name) if isinstance(name, str) else None

    def property(self, system: bool, name: str) -> object:
        one = self.message
        if system:
            return {
                "Label": one.subject,
                "Subject": one.subject,
                "MessageId": one.id,
                "DeliveryCount": Int32(one.delivery_count),
                "EnqueuedTimeUtc": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=one.timestamp_ns // 1000),
                "TimeToLive": None if one.ttl is None else timedelta(seconds=one.ttl),
                "LockToken": None,
            }[name]
        key = self.key(name)
        return None if key is None else one.headers[key]

    def key(self, name: str) -> str | None:
        if name in self.message.headers:
            return name
        return next((key for key in self.message.headers if key.lower() == name.lower()), None)

    def exists(self, node: tree.Property | tree.PropertyCall) -> bool:
        if isinstance(node, tree.PropertyCall):
            named = self.named(node)
            return named is not None and self.key(named[1]) is not None
        if node.scope == "sys":
            return self.property(True, node.name) is not None
        return self.key(node.name) is not None

    def numbers(self, left: object, right: object) -> tuple[object, object]:
        """In lenient mode a text beside a number becomes one."""
        if self.lenient and isinstance(left, str) and is_number(right):
            return read_number(left), right
        if self.lenient and isinstance(right, str) and is_number(left):
            return left, read_number(right)
        return left, right

    def compare(self, sign: str, left: object, right: object) -> bool | None:
        left, right = self.numbers(left, right)
        if left is None or right is None:
            return UNKNOWN
        compare = COMPARISONS[sign]
        if is_number(left) and is_number(right):
            if isinstance(left, float) or isinstance(right, float):
                if not self.lenient and (isinstance(left, Decimal) or isinstance(right, Decimal)):
                    return UNKNOWN
                left, right = float(left), float(right)  # type: ignore[arg-type]
            return bool(compare(left, right))
        for kind in (str, datetime, timedelta):
            if isinstance(left, kind) and isinstance(right, kind):
                return bool(compare(left, right))
        for kind in (bool, bytes, UUID):
            if isinstance(left, kind) and isinstance(right, kind) and sign in ("=", "<>"):
                return bool(compare(left, right))
        return UNKNOWN

    def like(self, node: tree.Like) -> bool | None:
        text, pattern = self.text(self.value(node.operand)), self.text(self.value(node.pattern))
        escape: object = "" if node.escape is None else self.value(node.escape)
        if text is None or pattern is None or escape is None:
            return UNKNOWN
        if not isinstance(escape, str) or (node.escape is not None and len(escape) != 1):
            self.fail()
            return UNKNOWN
        expression = pieces(pattern, escape)
        if expression is None:
            self.fail()
            return UNKNOWN
        return re.fullmatch(expression, text, re.DOTALL) is not None

    def text(self, value: object) -> str | None:
        if isinstance(value, str):
            return value
        if not self.lenient or not is_number(value):
            return None
        if isinstance(value, Decimal):
            return format(value, "f")
        return str(int(value)) if isinstance(value, int) else re.sub(r"\.0$", "", repr(value))

    def sign(self, sign: str, value: object) -> object:
        if self.lenient and isinstance(value, str):
            value = read_number(value)
        if not is_number(value) and not isinstance(value, timedelta):
            return None
        if sign == "+":
            return value
        if isinstance(value, int):
            return self.whole(-int(value), isinstance(value, Int32))
        return -value if not isinstance(value, Decimal) else value.copy_negate()

    def arithmetic(self, sign: str, left: object, right: object) -> object:
        if isinstance(left, str) and isinstance(right, str):
            if sign == "+":
                return left + right
            if self.lenient:
                left, right = read_number(left), read_number(right)
        left, right = self.numbers(left, right)
        if left is None or right is None:
            return None
        if is_number(left) and is_number(right):
            return self.number(sign, left, right)
        span = isinstance(right, timedelta) and isinstance(left, (datetime, timedelta)) and sign in "+-"
        if span or (isinstance(left, datetime) and isinstance(right, datetime) and sign == "-"):
            try:
                return left + right if sign == "+" else left - right  # type: ignore[operator]
            except OverflowError:
                self.fail()
        return None

    def number(self, sign: str, left: object, right: object) -> object:
        kinds = {kind for kind in (float, Decimal) if isinstance(left, kind) or isinstance(right, kind)}
        if kinds == {float, Decimal} and not self.lenient:
            return None
        if float in kinds:
            return double(sign, float(left), float(right))  # type: ignore[arg-type]
        if Decimal in kinds:
            return self.decimal(sign, Decimal(left), Decimal(right))  # type: ignore[arg-type]
        one, other = int(left), int(right)  # type: ignore[call-overload]
        narrow = isinstance(left, Int32) and isinstance(right, Int32)
        if sign in "/%":
            if other == 0:
                self.fail()
                return None
            quotient = self.whole(
                math.trunc(Decimal(one) / Decimal(other)) if abs(one) < 10**15 else exact(one, other), narrow
            )
            if quotient is None or sign == "/":
                return quotient
            return self.whole(one - int(quotient) * other, narrow)
        return self.whole({"+": one + other, "-": one - other, "*": one * other}[sign], narrow)

    def whole(self, value: int, narrow: bool) -> int | None:
        bits = 31 if narrow else 63
        if not -(2**bits) <= value < 2**bits:
            self.fail()
            return None
        return Int32(value) if narrow else value

    def decimal(self, sign: str, left: Decimal, right: Decimal) -> Decimal | None:
        with decimal.localcontext(prec=29):
            try:
                found = {
                    "+": operator.add,
                    "-": operator.sub,
                    "*": operator.mul,
                    "/": operator.truediv,
                    "%": operator.mod,
                }[sign](left, right)
            except decimal.DecimalException:
                self.fail()
                return None
        if abs(found) > Decimal(2**96 - 1):
            self.fail()
            return None
        return found


COMPARISONS: dict[str, Callable[[object, object], object]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def negated(truth: bool | None) -> bool | None:
    return UNKNOWN if truth is UNKNOWN else not truth


def is_number(value: object) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def read_number(text: str) -> object:
    if re.fullmatch(r"\s*[+-]?\d+\s*", text):
        number = int(text)
        return number if -(2**63) <= number < 2**63 else float(number)
    return float(text) if re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", text) else None


def exact(one: int, other: int) -> int:
    """Cut towards zero."""
    return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)


def double(sign: str, left: float, right: float) -> float:
    if sign == "/" and right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.inf if (math.copysign(1, left) == math.copysign(1, right)) else -math.inf
    if sign == "%":
        return math.nan if right == 0 or math.isinf(left) else math.fmod(left, right)
    return {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[sign](left, right)


def pieces(pattern: str, escape: str) -> str | None:
    """A pattern as a regular expression; None if it ends with its escape character."""
    found = ""
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            following = next(characters, None)
            if following is None:
                return None
            found += re.escape(following)
        else:
            found += {"%": ".*", "_": "."}.get(character) or re.escape(character)
    return found


def answer(one: Filter, message: Message) -> bool | str:
    try:
        return one.matches(message)
    except EvaluationError:
        return "failed"


LARGE = {"chars_max": 100_000, "depth_max": 100}


@settings(max_examples=300, deadline=None)
@given(predicates)
def test_what_is_printed_reads_as_the_same_tree(node: tree.Predicate) -> None:
    assert parse(printed(node), 100_000, 100) == node


@settings(max_examples=700, deadline=None)
@given(predicates, messages, st.sampled_from(["azure", "lenient"]))
def test_a_filter_answers_as_the_plain_logic_does(node: tree.Predicate, one: Message, mode: str) -> None:
    made = SqlFilter(printed(node), PARAMETERS, mode, None, **LARGE)  # type: ignore[arg-type]
    reference = Reference(one, mode == "lenient")
    truth = reference.truth(node)
    found = answer(made, one)
    if found == "failed":
        assert reference.failed
    else:
        assert found is (truth is True)
    if not reference.failed:
        assert made.condition.truth(one) == {True: 1, False: -1, None: 0}[truth]
    assert made.explain(one)[0].text == printed(node)


keyed = st.one_of(
    predicates,
    st.builds(
        lambda name, value, more: tree.And((tree.Comparison("=", name, value), more)), properties, leaves, predicates
    ),
    st.builds(lambda name, values: tree.In(name, tuple(values)), properties, st.lists(leaves, min_size=1, max_size=3)),
)
rules = st.lists(st.tuples(keyed, st.sampled_from(["azure", "lenient"])), max_size=8)


@settings(max_examples=200, deadline=None)
@given(
    rules, st.lists(messages, min_size=1, max_size=3), st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES))
)
def test_the_index_answers_as_asking_all_does(
    given_rules: list[tuple[tree.Predicate, str]], some: list[Message], wanted: dict[str, object]
) -> None:
    filters: list[Filter] = [
        SqlFilter(printed(node), PARAMETERS, mode, None, **LARGE)  # type: ignore[arg-type]
        for node, mode in given_rules
    ]
    filters += [CorrelationFilter(properties={name: value}) for name, value in wanted.items()]  # type: ignore[dict-item]
    index = FilterIndex(enumerate(filters))
    for one in some:
        answers = [answer(each, one) for each in filters]
        selection = index.select(one)
        assert selection.matched == [at for at, each in enumerate(answers) if each is True]
        assert [failure.key for failure in selection.failed] == [
            at for at, each in enumerate(answers) if each == "failed"
        ]


@given(st.text("ab%_!", max_size=12), st.text("ab!", max_size=20), st.sampled_from(["", "!"]))
def test_like_is_a_regular_expression_in_linear_steps(pattern: str, text: str, escape: str) -> None:
    expression = pieces(pattern, escape)
    if expression is None:
        return
    steps = Likeness(pattern, escape).walk(text)
    assert (steps > 0) == (re.fullmatch(expression, text) is not None)
    assert 0 < abs(steps) <= len(text) + 3 * len(pattern) + 8


# Random texts: a tree or a mistake with its place and a hint, and never anything else.

SAMPLES = [
    "color = 'red' AND price > 10",
    "sys.Label LIKE 'a!%%' ESCAPE '!' OR NOT EXISTS ( [a b] )",
    "p ( 'a' ) IN ( 1 , 'x' , @p ) AND a IS NOT NULL",
    "- ( a + 1.5 ) * 2 % 3 <> 1E5 / newid ( )",
    'user."q" NOT IN ( TRUE , NULL ) or ( a != .5 )',
]
ODD = ["[", "]", '"', "'", "'open", "[open", "@", "0x1", "5abc", "99999999999999999999", "1e999", "sys.X", "==", "&&"]
ODD += ["||", "\x00", "é", "’", ";", ".", ",", "(", ")", "NOT", "SET", "=", "-", "IS"]


def random_text(chance: random.Random) -> str:
    """A filter with a few words taken out, doubled, exchanged or put in."""
    words = " AND ".join(chance.choices(SAMPLES, k=chance.randrange(1, 4))).split()
    for _ in range(chance.randrange(5)):
        at = chance.randrange(len(words))
        change = chance.randrange(4)
        if change == 0 and len(words) > 1:
            del words[at]
        elif change == 1:
            words.insert(at, words[chance.randrange(len(words))])
        elif change == 2:
            words[at] = chance.choice(ODD)
        else:
            words.insert(at, chr(chance.randrange(0x250)))
    return chance.choice(["", " ", " ", " "]).join(words)


def mistake(make: Callable[[], object]) -> FilterInvalid | None:
    try:
        make()
    except FilterInvalid as error:
        return error
    return None


def check_text(text: str) -> bool:
    """Whether the text was in the language."""
    error = mistake(lambda: parse(text))
    if error is not None:
        assert 0 <= error.position <= len(text)
        assert error.hint
        return False
    parser = Parser(text)
    found = parser.whole_predicate()
    assert parser.steps <= len(tokenize(text)) <= len(text) + 1
    assert parse(printed(found), 100_000, 100) == found
    return True


def check_action(text: str) -> None:
    error = mistake(lambda: SqlRuleAction(text, {"p": 1}))
    if error is not None:
        assert 0 <= error.position <= len(text)
        assert error.hint


def check_random_texts(seed: int, count: int) -> None:
    chance = random.Random(seed)
    texts = [random_text(chance) for _ in range(count)]
    good = sum(map(check_text, texts))
    assert count / 20 < good < count * 19 / 20, "too few of one kind to prove anything"
    for text in texts:
        check_action("SET a = " + text)


def test_random_texts() -> None:
    check_random_texts(20_240_501, 3_000)


@given(st.text())
def test_any_text(text: str) -> None:
    check_text(text)
    check_action(text)
