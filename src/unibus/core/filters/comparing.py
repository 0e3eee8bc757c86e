# mypyc: compiled
"""Compares two values by the rules of C#: by type, and UNKNOWN if the types are not comparable.

    texts            by code point, case matters
    numbers          by value; a float beside an integer as floats; a float beside a Decimal is UNKNOWN
    instants, spans  by time; an instant without a zone is UTC
    booleans, bytes, UUIDs     equal or not; which is less is UNKNOWN

None, which is NULL or a missing property, makes every comparison UNKNOWN. In lenient mode a text that can be parsed as
a number is compared with a number as one, and floats are compared with Decimals.
"""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from mypy_extensions import i64

from unibus.core.filters.numbers import (
    BOOLEAN,
    BYTES,
    DECIMAL,
    DOUBLE,
    INSTANT,
    INT32,
    NOTHING,
    SPAN,
    TEXT,
    UUID_,
    aware,
    decimal_of,
    double_of,
    kind_of,
    number_of_text,
)

# NOT is the negative, AND the least, OR the greatest.
FALSE: Final = -1
UNKNOWN: Final = 0
TRUE: Final = 1

EQUAL: Final = 1
UNEQUAL: Final = 2
LESS: Final = 3
AT_MOST: Final = 4
MORE: Final = 5
AT_LEAST: Final = 6

OPERATORS: Final[dict[str, i64]] = {
    "=": EQUAL,
    "<>": UNEQUAL,
    "<": LESS,
    "<=": AT_MOST,
    ">": MORE,
    ">=": AT_LEAST,
}
MIRRORED: Final[dict[str, str]] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The equivalent operator for exchanged sides."""


def compared(operator: i64, left: object, right: object, lenient: bool) -> i64:
    """TRUE, FALSE or UNKNOWN."""
    one = kind_of(left)
    other = kind_of(right)
    if one == NOTHING or other == NOTHING:
        return UNKNOWN
    if one == TEXT and other == TEXT:
        assert isinstance(left, str)
        assert isinstance(right, str)
        return verdict(operator, left < right, left == right)
    if one >= INT32 and other >= INT32:
        return _numbers(operator, left, right, one + other == DOUBLE + DECIMAL, lenient)
    if one == other:
        return _alike(operator, left, right, one)
    return _coerced(operator, left, right) if lenient else UNKNOWN


def verdict(operator: i64, less: bool, equal: bool) -> i64:
    if operator == EQUAL:
        holds = equal
    elif operator == UNEQUAL:
        holds = not equal
    elif operator == LESS:
        holds = less
    elif operator == AT_MOST:
        holds = less or equal
    elif operator == MORE:
        holds = not (less or equal)
    else:
        holds = not less
    return TRUE if holds else FALSE


def _numbers(operator: i64, left: object, right: object, foreign: bool, lenient: bool) -> i64:
    if isinstance(left, float) or isinstance(right, float):
        if foreign and not lenient:
            return UNKNOWN
        return doubles(operator, double_of(left), double_of(right))
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return _decimals(operator, left, right)
    assert isinstance(left, int)
    assert isinstance(right, int)
    return verdict(operator, left < right, left == right)


def doubles(operator: i64, left: float, right: float) -> i64:
    if left != left or right != right:
        return TRUE if operator == UNEQUAL else FALSE
    return verdict(operator, left < right, left == right)


def _decimals(operator: i64, left: object, right: object) -> i64:
    one = decimal_of(left)
    other = decimal_of(right)
    if one.is_nan() or other.is_nan():
        return UNKNOWN  # C# has no such decimal.
    return verdict(operator, one < other, one == other)


def _alike(operator: i64, left: object, right: object, kind: i64) -> i64:
    """Two of one kind that is neither text nor number."""
    if kind == INSTANT:
        assert isinstance(left, datetime)
        assert isinstance(right, datetime)
        one, other = aware(left), aware(right)
        return verdict(operator, one < other, one == other)
    if kind == SPAN:
        assert isinstance(left, timedelta)
        assert isinstance(right, timedelta)
        return verdict(operator, left < right, left == right)
    if kind != BOOLEAN and kind != BYTES and kind != UUID_:
        return UNKNOWN
    return verdict(operator, False, left == right) if operator <= UNEQUAL else UNKNOWN


def _coerced(operator: i64, left: object, right: object) -> i64:
    """A text and a number: the text is compared as the number that it can be parsed as."""
    if isinstance(left, str) and kind_of(right) >= INT32:
        return compared(operator, number_of_text(left), right, True)
    if isinstance(right, str) and kind_of(left) >= INT32:
        return compared(operator, left, number_of_text(right), True)
    return UNKNOWN
