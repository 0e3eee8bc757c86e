# mypyc: compiled
"""Arithmetic by the rules of C#, which the filter language defines: the kinds of numbers, and the kind of a result.

    Int32 with Int32  ──▶ Int32       int with int or Int32 ──▶ int, 64 bits
    any with float    ──▶ float       any integer with Decimal ──▶ Decimal        float with Decimal ──▶ UNKNOWN

Division of integers truncates towards zero. A result beyond the width of an integer is an error; so is an integer or a
Decimal divided by zero. A float becomes infinity or NaN. If a kind does not have the operation, the value is None,
which is UNKNOWN. In lenient mode a text that can be parsed as a number counts as one next to a number.
"""

import math
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, DecimalException
from typing import Final
from uuid import UUID

from mypy_extensions import i64

from unibus.core.envelope.message_properties import Int32
from unibus.errors import EvaluationError
from unibus.limits import FILTER_TEXT_CHARS_MAX

# The kind of a value for arithmetic and comparison. Numbers are the highest, in the order of their conversion.
NOTHING: Final = 0
TEXT: Final = 1
BOOLEAN: Final = 2
BYTES: Final = 3
UUID_: Final = 4
INSTANT: Final = 5
SPAN: Final = 6
INT32: Final = 7
INT64: Final = 8
DOUBLE: Final = 9
DECIMAL: Final = 10

_INT32_MIN: Final = -(2**31)
_INT32_MAX: Final = 2**31 - 1
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_DECIMAL_MAX: Final = Decimal(2**96 - 1)
_DECIMALS: Final = Context(prec=29, rounding=ROUND_HALF_EVEN)
_DIGITS_MAX: Final = 400
_TYPES: Final[dict[type[object], i64]] = {
    str: TEXT,
    int: INT64,
    float: DOUBLE,
    bool: BOOLEAN,
    Int32: INT32,
    Decimal: DECIMAL,
    bytes: BYTES,
    datetime: INSTANT,
    timedelta: SPAN,
    UUID: UUID_,
}


def kind_of(value: object) -> i64:
    """The kind of a value; NOTHING for None, and for a type that no header can have."""
    if value is None:
        return NOTHING
    known = _TYPES.get(type(value))
    return _kind_of_rarer(value) if known is None else known


def _kind_of_rarer(value: object) -> i64:
    """The kind of a subclass. bool and Int32 are in the table themselves; another subclass of int is an int."""
    for base, kind in _TYPES.items():
        if isinstance(value, base):
            return kind
    return NOTHING


def number_of_text(text: str) -> object:
    """The number that a text can be parsed as, in lenient mode; None if it cannot."""
    text = text.strip()
    if not text or len(text) > _DIGITS_MAX or not text.isascii() or text.strip("+-.0123456789eE"):
        return None
    try:
        if text.lstrip("+-").isdigit():
            number = int(text)
            return number if _INT64_MIN <= number <= _INT64_MAX else float(number)
        return float(text)
    except (ValueError, OverflowError):
        return None


def arithmetic(operator: str, left: object, right: object, lenient: bool) -> object:
    """The value, None for UNKNOWN. Raises EvaluationError where C# would throw."""
    if isinstance(left, str) and isinstance(right, str):
        return _joined(left, right) if operator == "+" else _lenient_texts(operator, left, right, lenient)
    if lenient:
        left = _lenient_number(left, right)
        right = _lenient_number(right, left)
    one = kind_of(left)
    other = kind_of(right)
    if one >= INT32 and other >= INT32:
        return _of_numbers(operator, left, right, max(one, other) if one + other != DOUBLE + DECIMAL else 0, lenient)
    return _of_times(operator, left, right)


def _joined(left: str, right: str) -> str:
    if len(left) + len(right) > FILTER_TEXT_CHARS_MAX:
        raise EvaluationError(f"the joined text has more than {FILTER_TEXT_CHARS_MAX} characters")
    return left + right


def _lenient_texts(operator: str, left: str, right: str, lenient: bool) -> object:
    """Two texts with an operator other than +: they can only be meant as numbers."""
    if not lenient:
        return None
    one = number_of_text(left)
    other = number_of_text(right)
    return None if one is None or other is None else arithmetic(operator, one, other, False)


def _lenient_number(value: object, beside: object) -> object:
    if isinstance(value, str) and kind_of(beside) >= INT32:
        return number_of_text(value)
    return value


def _of_numbers(operator: str, left: object, right: object, kind: i64, lenient: bool) -> object:
    if kind == 0:
        if not lenient:
            return None  # C# does not convert between double and decimal.
        return _of_doubles(operator, double_of(left), double_of(right))
    if kind == DOUBLE:
        return _of_doubles(operator, double_of(left), double_of(right))
    if kind == DECIMAL:
        return _of_decimals(operator, decimal_of(left), decimal_of(right))
    assert isinstance(left, int)
    assert isinstance(right, int)
    result = _of_integers(operator, left, right)
    # In C# the remainder overflows if the quotient does.
    quotient = _of_integers("/", left, right) if operator == "%" else 0
    if kind == INT32:
        _check_width(result, quotient, _INT32_MIN, _INT32_MAX)
        return Int32(result)
    _check_width(result, quotient, _INT64_MIN, _INT64_MAX)
    return result


def _check_width(result: int, quotient: int, least: int, most: int) -> None:
    if not (least <= result <= most and least <= quotient <= most):
        raise EvaluationError(
            f"the result is a whole number that does not fit into {32 if most == _INT32_MAX else 64} bits"
        )


def _of_integers(operator: str, left: int, right: int) -> int:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if right == 0:
        raise EvaluationError("a whole number is divided by zero")
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    if operator == "/":
        return quotient
    return left - quotient * right


def _of_doubles(operator: str, left: float, right: float) -> float:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if operator == "/":
        return left / right if right != 0.0 else _by_zero(left, right)
    if right == 0.0 or math.isinf(left):
        return math.nan
    return math.fmod(left, right)


def _by_zero(left: float, right: float) -> float:
    if left == 0.0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _of_decimals(operator: str, left: Decimal, right: Decimal) -> Decimal:
    if not (left.is_finite() and right.is_finite()):
        raise EvaluationError(f"{operator} cannot be applied to a decimal that is infinite or NaN")
    if operator in "/%" and not right:
        raise EvaluationError("a decimal is divided by zero")
    try:
        result = _decimal_result(operator, left, right)
    except DecimalException as error:
        raise EvaluationError(f"the result of {operator} has more than 28 digits, the limit of a decimal") from error
    if result.is_finite() and abs(result) <= _DECIMAL_MAX:
        return result
    raise EvaluationError(f"the result of {operator} has more than 28 digits, the limit of a decimal")


def _decimal_result(operator: str, left: Decimal, right: Decimal) -> Decimal:
    if operator == "+":
        return _DECIMALS.add(left, right)
    if operator == "-":
        return _DECIMALS.subtract(left, right)
    if operator == "*":
        return _DECIMALS.multiply(left, right)
    return _DECIMALS.divide(left, right) if operator == "/" else _DECIMALS.remainder(left, right)


def _of_times(operator: str, left: object, right: object) -> object:
    """Addition and subtraction of instants and time spans, as in C#."""
    try:
        if isinstance(left, timedelta) and isinstance(right, timedelta):
            return left + right if operator == "+" else left - right if operator == "-" else None
        if isinstance(left, datetime) and isinstance(right, timedelta):
            return left + right if operator == "+" else left - right if operator == "-" else None
        if isinstance(left, datetime) and isinstance(right, datetime) and operator == "-":
            return aware(left) - aware(right)
    except OverflowError as error:
        raise EvaluationError(f"the result of {operator} is a time outside of the calendar") from error
    return None


def signed(operator: str, value: object, lenient: bool) -> object:
    """The value with a sign; None if its kind has none."""
    if lenient and isinstance(value, str):
        value = number_of_text(value)
    kind = kind_of(value)
    if kind < SPAN:
        return None
    if operator == "+":
        return value
    if isinstance(value, timedelta):
        try:
            return -value
        except OverflowError as error:
            raise EvaluationError("the negated time span is too long") from error
    if kind == DOUBLE:
        return -double_of(value)
    if kind == DECIMAL:
        return decimal_of(value).copy_negate()
    return _of_numbers("-", Int32(0) if kind == INT32 else 0, value, kind, lenient)


def double_of(value: object) -> float:
    """A number as the nearest double."""
    if isinstance(value, float):
        return value
    if isinstance(value, Decimal):
        return float(value) if not value.is_nan() else math.nan
    assert isinstance(value, int)
    return float(value)


def decimal_of(value: object) -> Decimal:
    """An integer or a decimal as a decimal."""
    if isinstance(value, Decimal):
        return value
    assert isinstance(value, int)
    return Decimal(value)


def aware(value: datetime) -> datetime:
    """The time with a zone; without one it is UTC, as Azure's clients send it."""
    return value.replace(tzinfo=UTC) if value.utcoffset() is None else value
