# mypyc: compiled
"""SqlRuleAction: how a rule changes a message that it matched, by SET and REMOVE.

Statements are executed one after the other, and each sees the effects of those before it. The message itself is not
changed: `apply` returns another one around the same body.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, final
from uuid import UUID

from mypy_extensions import i64

from unibus.core.envelope.fields import checked_header
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.message_properties import HeaderValue, Int32, MessageProperties
from unibus.core.filters import tree
from unibus.core.filters.compiling import Compiler
from unibus.core.filters.expressions import Draw, Term
from unibus.core.filters.filters import LENIENT, MODES, Values, as_named, bound
from unibus.core.filters.numbers import DECIMAL, DOUBLE, INT32, INT64, aware, decimal_of, double_of, kind_of
from unibus.core.filters.parser import Parser
from unibus.core.filters.predicates import text_of
from unibus.core.filters.printing import printed_statement
from unibus.core.filters.property_lookup import (
    MESSAGE_ID,
    PARTITION_KEY,
    SCHEDULED_TIME,
    SESSION_ID,
    TIME_TO_LIVE,
    is_text,
    is_writable,
    name_in,
    system_number,
)
from unibus.core.filters.tokens import END, KEYWORD, NAME, invalid, near
from unibus.display import guarded
from unibus.errors import EvaluationError, FilterInvalid, HeaderInvalid
from unibus.limits import (
    FILTER_CHARS_MAX,
    FILTER_DEPTH_MAX,
    FILTER_STATEMENTS_MAX,
    HEADER_COUNT_MAX,
    MESSAGE_ID_CHARS_MAX,
)

_WORDS: Final = frozenset({"SET", "REMOVE"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS: Final[dict[str, str]] = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "subject",
    "Subject": "subject",
    "PartitionKey": "partition_key",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
}


@final
class ActionStep:
    """One compiled statement. Without a term it removes the property."""

    def __init__(self, target: tree.Property, term: Term | None) -> None:
        self.target = target
        self.term = term


@final
class SqlRuleAction:
    """`SET [sys.|user.]name = expression` and `REMOVE name`, separated by ; or , and at most 32 of them."""

    def __init__(
        self,
        expression: str,
        parameters: Values | None = None,
        mode: str = "azure",
        new_id: Draw | None = None,
        chars_max: i64 = FILTER_CHARS_MAX,
        depth_max: i64 = FILTER_DEPTH_MAX,
        statements_max: i64 = FILTER_STATEMENTS_MAX,
    ) -> None:
        if mode not in MODES:
            raise FilterInvalid(f"there is no filter mode {mode!r:.40}", "use 'azure' or 'lenient'")
        parser = Parser(expression, chars_max, depth_max)
        self.expression = expression
        self.statements: tuple[tree.Statement, ...] = tuple(_statements(parser, statements_max))
        self.parameters: Mapping[str, HeaderValue] = bound(parser.parameters, parameters)
        self.named: Mapping[str, HeaderValue] = as_named(parameters, self.parameters)  # In the case as given.
        self.mode = mode
        compiler = Compiler(self.parameters, mode == LENIENT, new_id)
        self._steps = [_step(statement, compiler) for statement in self.statements]

    @property
    def text(self) -> str:
        """The action as text, in the canonical form of `printing.py`."""
        return "; ".join([printed_statement(statement) for statement in self.statements])

    def apply(self, message: Message) -> Message:
        """The changed message. Raises EvaluationError, with nothing changed, if a statement has no result."""
        other = message.copy()
        other.properties = MessageProperties() if message.properties is None else message.properties.copy()
        try:
            for step in self._steps:
                other = _set(other, step.target, step.term) if step.term is not None else _remove(other, step.target)
        except (EvaluationError, MemoryError):
            raise
        except Exception as error:
            raise EvaluationError(f"the action cannot be applied: {type(error).__name__}") from error
        return other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SqlRuleAction):
            return NotImplemented
        return self.statements == other.statements and self.parameters == other.parameters and self.mode == other.mode

    def __hash__(self) -> int:
        return hash((self.statements, self.mode))

    def __repr__(self) -> str:
        return guarded(self, lambda: f"<SqlRuleAction {self.text!r:.80}>")


# Parsing


def _statements(parser: Parser, statements_max: i64) -> list[tree.Statement]:
    statements: list[tree.Statement] = []
    while True:
        at = parser.token().position
        if len(statements) == statements_max:
            raise invalid(
                f"the action has more than {statements_max} statements: the first one too many is",
                at,
                "use several rules",
            )
        statements.append(_statement(parser))
        separated = parser.accept_sign(";") or parser.accept_sign(",")
        token = parser.token()
        if token.kind == END:
            return statements
        if not separated:
            raise invalid(
                f"expected ; after a statement, found {token.text[:40]!r}", token.position, "separate statements with ;"
            )


def _statement(parser: Parser) -> tree.Statement:
    token = parser.advance()
    word = token.text.upper()
    if token.kind != NAME or word not in _WORDS:
        shown = "the end" if token.kind == END else f"{token.text[:40]!r}"
        hint = near(word, _WORDS, "a statement is SET name = value, or REMOVE name")
        raise invalid(f"expected SET or REMOVE, found {shown}", token.position, hint)
    at = parser.token().position
    target = parser.property()
    _check_target(target, word, at)
    if word == "REMOVE":
        return tree.RemoveProperty(target)
    parser.expect_sign("=", "SET")
    value = parser.expression()
    after = parser.token()
    if after.kind == KEYWORD or after.text in ("=", "<>", "!=", "<", "<=", ">", ">="):
        raise invalid(
            f"expected the end of the SET statement, found {after.text!r}",
            after.position,
            "SET takes a value, not a condition",
        )
    return tree.SetProperty(target, value)


def _check_target(target: tree.Property, word: str, position: i64) -> None:
    if target.scope != "sys":
        return
    if not is_writable(target.name):
        raise invalid(f"sys.{target.name} cannot be changed,", position, "the broker sets it")
    if word == "REMOVE" and system_number(target.name) == MESSAGE_ID:
        raise invalid("sys.MessageId cannot be removed,", position, "every message has one; use SET to change it")


def _step(statement: tree.Statement, compiler: Compiler) -> ActionStep:
    if isinstance(statement, tree.SetProperty):
        return ActionStep(statement.target, compiler.term(statement.value))
    return ActionStep(statement.target, None)


# Executing


def _set(message: Message, target: tree.Property, term: Term) -> Message:
    value = term.value(message)
    if target.scope == "sys":
        return _set_system(message, target.name, value)
    _set_user(_properties(message), target.name, value)
    return message


def _set_user(properties: MessageProperties, given: str, value: object) -> None:
    # A new dict, not a changed one: caches about headers (`trust_headers`, `spelling`) are keyed by the dict.
    headers = dict(properties.headers)
    known = name_in(headers, given)
    name = given if known is None else known
    if known is None and len(headers) >= HEADER_COUNT_MAX:
        raise EvaluationError(f"the message would have more than {HEADER_COUNT_MAX} properties")
    try:
        headers[name] = checked_header(name, _as_before(headers.get(name), value))
    except HeaderInvalid as error:
        raise EvaluationError(error.what) from error
    properties.headers = headers


def _as_before(old: object, new: object) -> object:
    """The number in the type that the property had, if C# converts it implicitly or the value still fits."""
    before = kind_of(old)
    now = kind_of(new)
    if now == INT64 and before == INT32:
        assert isinstance(new, int)
        # Not in one expression: compiled, the type of both together would be a plain int.
        if -(2**31) <= new < 2**31:
            return Int32(new)
        return new
    if now == INT32 and before == INT64:
        assert isinstance(new, int)
        return int(new)
    if before == DOUBLE and (now in (INT32, INT64)):
        return double_of(new)
    return decimal_of(new) if before == DECIMAL and (now in (INT32, INT64)) else new


def _set_system(message: Message, name: str, value: object) -> Message:
    number = system_number(name)
    properties = _properties(message)
    if is_text(number):
        text = _system_text(name, number, value)
        if number == MESSAGE_ID:
            return _renamed(message, text)
        setattr(properties, _FIELDS[name], text)
    elif number == TIME_TO_LIVE:
        properties.ttl_ns = _lifetime_ns(value)
        if message.expires_ns:
            message.expires_ns = message.timestamp_ns + properties.ttl_ns if properties.ttl_ns else 0
    elif number == SCHEDULED_TIME:
        properties.scheduled_at_ns = _moment_ns(value)
    return message


def _system_text(name: str, number: i64, value: object) -> str | None:
    text = str(value) if isinstance(value, UUID) else text_of(value, True)
    if text is None and value is not None:
        raise EvaluationError(f"sys.{name} must be text, not {type(value).__name__}")
    if number in (MESSAGE_ID, SESSION_ID, PARTITION_KEY):
        if text is not None and not 1 <= len(text) <= MESSAGE_ID_CHARS_MAX:
            raise EvaluationError(f"sys.{name} must have 1 to {MESSAGE_ID_CHARS_MAX} characters")
    return text


def _renamed(message: Message, text: str | None) -> Message:
    if text is None:
        raise EvaluationError("sys.MessageId cannot be NULL")
    other = restored(text, message.channel, message.body, message.timestamp_ns, message.properties)
    other.priority = message.priority
    other.sequence = message.sequence
    other.expires_ns = message.expires_ns
    other.delivery_count = message.delivery_count
    return other


def _lifetime_ns(value: object) -> i64:
    if value is None:
        return 0
    if not isinstance(value, timedelta) or value <= timedelta(0) or value > timedelta(days=100_000):
        raise EvaluationError("sys.TimeToLive must be a positive time span")
    return value // timedelta(microseconds=1) * 1000


def _moment_ns(value: object) -> i64:
    if value is None:
        return 0
    if not isinstance(value, datetime):
        raise EvaluationError("sys.ScheduledEnqueueTimeUtc must be an instant")
    since = (aware(value) - _EPOCH) // timedelta(microseconds=1) * 1000
    if not 0 < since < 2**63:
        raise EvaluationError("sys.ScheduledEnqueueTimeUtc is out of range")
    return since


def _remove(message: Message, target: tree.Property) -> Message:
    if target.scope == "sys":
        return _set_system(message, target.name, None)
    properties = _properties(message)
    name = name_in(properties.headers, target.name)
    if name is not None:
        properties.headers = {known: value for known, value in properties.headers.items() if known != name}
    return message


def _properties(message: Message) -> MessageProperties:
    properties = message.properties
    assert properties is not None
    return properties
