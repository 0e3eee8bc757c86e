"""The functions that a query may call. Those with quadratic time in SQLite are replaced by our own.

SQLite does not check its limits inside a function: `trim` of a long text with a long set, and `instr` and `replace`
with a long pattern, take minutes. Ours take linear time. Functions that create large values from nothing (zeroblob,
randomblob), or that reach outside of the query, are not allowed.
"""

from collections.abc import Callable
from typing import Final

import apsw

from unibus.errors import QueryStopped

_TEXT = "char coalesce concat concat_ws format glob hex if ifnull iif instr length like lower ltrim nullif "
_TEXT += "octet_length printf quote replace rtrim substr substring trim typeof unicode unistr upper"
_NUMBERS = "abs acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 max "
_NUMBERS += "min mod pi pow power radians random round sign sin sinh sqrt tan tanh trunc"
_TIMES = "current_date current_time current_timestamp date datetime julianday strftime time timediff unixepoch"
_GROUPS = "avg count group_concat median string_agg sum total"
_WINDOWS = "cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number"
_JSON = "-> ->> json json_array json_array_length json_each json_error_position json_extract json_group_array "
_JSON += "json_group_object json_insert json_object json_pretty json_quote json_remove json_replace json_set json_tree "
_JSON += "json_type json_valid"

FUNCTIONS: Final = frozenset(" ".join((_TEXT, _NUMBERS, _TIMES, _GROUPS, _WINDOWS, _JSON)).split())


def install(connection: apsw.Connection, longest: Callable[[], int]) -> None:
    """Replace SQLite's functions. `longest` returns how many characters a value may have."""

    def found(*values: object) -> int | None:
        return instr(values[0], values[1])

    def replaced(*values: object) -> str | None:
        return replace(values[0], values[1], values[2], longest())

    # A function with the name and the number of arguments of a built-in one replaces it. `deterministic` lets SQLite
    # evaluate it once for constants.
    connection.create_scalar_function("instr", found, 2, deterministic=True)
    connection.create_scalar_function("replace", replaced, 3, deterministic=True)
    for name, left, right in (("trim", True, True), ("ltrim", True, False), ("rtrim", False, True)):
        for count in (1, 2):
            connection.create_scalar_function(name, _trimmer(left, right), count, deterministic=True)


def instr(text: object, part: object) -> int | None:
    if text is None or part is None:
        return None
    if isinstance(text, bytes) and isinstance(part, bytes):
        return text.find(part) + 1
    return as_text(text).find(as_text(part)) + 1


def replace(text: object, pattern: object, by: object, longest: int) -> str | None:
    if text is None or pattern is None or by is None:
        return None
    whole, old, new = as_text(text), as_text(pattern), as_text(by)
    if not old:
        return whole
    # Checked before it is built: the result could be a thousand times larger than memory.
    if len(new) > len(old) and len(whole) + whole.count(old) * (len(new) - len(old)) > longest:
        raise QueryStopped("replace() would make a value that is too long", "shorten the text with substr()")
    return whole.replace(old, new)


def _trimmer(left: bool, right: bool) -> Callable[..., str | None]:
    def trim(*values: object) -> str | None:
        text, characters = (values[0], " ") if len(values) == 1 else (values[0], values[1])
        if text is None or characters is None:
            return None
        return trimmed(as_text(text), frozenset(as_text(characters)), left, right)

    return trim


def trimmed(text: str, characters: frozenset[str], left: bool, right: bool) -> str:
    start, end = 0, len(text)
    while left and start < end and text[start] in characters:
        start += 1
    while right and end > start and text[end - 1] in characters:
        end -= 1
    return text[start:end]


def as_text(value: object) -> str:
    """As SQLite casts it, except for the last digits of a floating-point number."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
