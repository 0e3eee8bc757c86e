"""How much a query may grow while SQLite translates it, judged from its text.

SQLite puts the expression behind a column of a subquery (or behind an alias) wherever the column is named, then does
the same with the subquery inside of that one. Named twice on each of thirty levels it fills all memory, and nobody is
asked on the way but the authorizer: before the first copy, and before each level, too late to prevent that one. So each
time the guard is asked whether there is room for what the next levels could make of what there is.
"""

import re
from collections import Counter
from typing import Final

from unibus.errors import QueryInvalid

WORDS_MAX: Final = 1_000
"""A query is a text of a person. Long lists belong into a parameter: json_each(?)."""

# What SQLite takes as a name. One before a point is that of a table, one before a bracket that of a function.
_NAME: Final = re.compile(
    r"""([A-Za-z_\u0080-\U0010ffff][\w$\u0080-\U0010ffff]*|"[^"]*"|`[^`]*`|\[[^\]]*\])(\s*[.(])?"""
)
# Only those that cannot be the name of a column.
_KEYWORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "all and as between case collate distinct else escape exists from group having in is isnull join limit not "
        "notnull null on or order select then using values when where",
    )
)


def growth_of(sql: str) -> int:
    """By how much it may grow at most until SQLite can be stopped. QueryInvalid for a text that is too long."""
    found = [(name.strip('"`[]').casefold(), after.strip()) for name, after in _NAME.findall(sql)]
    if len(found) > WORDS_MAX:
        raise QueryInvalid(f"the query has {len(found)} words", f"at most {WORDS_MAX}; give lists as a parameter")
    names = Counter(name for name, after in found if not after and name not in _KEYWORDS)
    most = max(names.values(), default=1)
    levels = sum(name == "select" for name, _ in found)
    if levels <= 1:
        return most
    # The names of three levels together are no more than there are: their product is largest where they are equal.
    return most**2 if levels == 2 else max(most**2, most**3 // 8)
