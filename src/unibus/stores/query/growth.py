"""Estimates from its text how much a query may grow while SQLite compiles it.

SQLite copies the expression of a subquery's column (or of an alias) to every place where the column is named, then does
the same with the subquery inside it. A column that is named twice on each of thirty levels fills all memory. Meanwhile
SQLite calls only the authorizer: before the first copy and before each level, too late to prevent that level. So at
each call the guard checks whether memory is enough for what the next levels could make of the current size.
"""

import re
from collections import Counter
from typing import Final

from unibus.errors import QueryInvalid

WORDS_MAX: Final = 1_000
"""Enough for a query that a person writes. Pass a long list as a parameter: json_each(?)."""

# A name in SQLite. Before a point it is the name of a table, before a bracket that of a function.
_NAME: Final = re.compile(
    r"""([A-Za-z_\u0080-\U0010ffff][\w$\u0080-\U0010ffff]*|"[^"]*"|`[^`]*`|\[[^\]]*\])(\s*[.(])?"""
)
# Only keywords that cannot be the name of a column.
_KEYWORDS: Final = frozenset(
    re.findall(
        r"\w+",
        "all and as between case collate distinct else escape exists from group having in is isnull join limit not "
        "notnull null on or order select then using values when where",
    )
)


def growth_of(sql: str) -> int:
    """The factor by which the query can grow until SQLite can be stopped. QueryInvalid for a text that is too long."""
    found = [(name.strip('"`[]').casefold(), after.strip()) for name, after in _NAME.findall(sql)]
    if len(found) > WORDS_MAX:
        raise QueryInvalid(
            f"the query has {len(found)} words, at most {WORDS_MAX} are allowed", "pass lists as a parameter"
        )
    names = Counter(name for name, after in found if not after and name not in _KEYWORDS)
    most = max(names.values(), default=1)
    levels = sum(name == "select" for name, _ in found)
    if levels <= 1:
        return most
    # Three levels share the uses of a name: the product is largest if each has the same number.
    return most**2 if levels == 2 else max(most**2, most**3 // 8)
