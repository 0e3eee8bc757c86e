# mypyc: compiled
"""The plan of a table scan: which comparisons the table applies itself, and the order of its rows."""

from collections.abc import Collection
from typing import Final, final

from unibus.stores.query.table_source import COMPLETED, DELIVERED, FAILED, PENDING

EQ: Final = "="
IN: Final = "in"
NE: Final = "!="
GT: Final = ">"
GE: Final = ">="
LT: Final = "<"
LE: Final = "<="


@final
class QueryPlan:
    """Comparisons (column, operator), whose right sides come with each scan, and the columns that order the rows."""

    def __init__(self, terms: list[tuple[str, str]], order: list[str], descending: bool) -> None:
        self.terms = terms
        self.order = order
        self.descending = descending

    def with_values(self, values: tuple[object, ...] | None) -> list[tuple[str, str, object]]:
        if values is None:
            return []
        return [(column, operator, values[at]) for at, (column, operator) in enumerate(self.terms)]


@final
class WantedMessages:
    """The messages that match the comparisons. It may select too many: SQLite compares again."""

    def __init__(self) -> None:
        self.statuses: set[str] = {PENDING, FAILED, DELIVERED}
        self.channel: str | None = None
        self.ids: set[str] | None = None

    def narrow(self, column: str, operator: str, value: object) -> None:
        if value is None:  # In SQL nothing is equal or unequal to NULL.
            self.statuses = set()
            return
        # SQLite compares again with its own rules, except for the status. So it is enough that nothing is excluded that
        # SQLite would keep.
        texts = texts_of(value)
        if column == "status":
            self.statuses = self.statuses - texts if operator == NE else self.statuses & texts
        elif column == "state":
            self.statuses -= {DELIVERED} if COMPLETED not in texts else {PENDING, FAILED} if len(texts) == 1 else set()
        elif column == "id":
            self.ids = texts if self.ids is None else self.ids & texts
        elif column == "channel":
            channel = next(iter(texts), None)
            if channel is None or self.channel not in (None, channel):
                self.statuses = set()
            self.channel = channel


def texts_of(value: object) -> set[str]:
    """The text of a comparison, or all texts of an IN. Other values are equal to none of our texts."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, (set, frozenset, list, tuple)):
        return {each for each in value if isinstance(each, str)}
    return set()


def excludes_delivered(column: str, operator: str, value: object) -> bool:
    """Whether a comparison with a constant excludes all delivered messages."""
    if not isinstance(value, str):
        return False
    if column == "status":
        return (value != DELIVERED) if operator == EQ else operator == NE and value == DELIVERED
    return column == "state" and operator == EQ and value != COMPLETED


@final
class HistoryPart:
    """The part of history that matches the comparisons."""

    def __init__(self) -> None:
        self.after = 0
        self.until: int | None = None
        self.kinds: set[str] | None = None
        self.message_id: str | None = None
        self.empty = False

    def narrow(self, column: str, operator: str, value: object) -> None:
        if value is None:
            self.empty = True
        elif column == "seq":
            self._narrow_seq(operator, value)
        elif column == "kind":
            kinds = texts_of(value)
            self.kinds = kinds if self.kinds is None else self.kinds & kinds
        elif isinstance(value, str) and self.message_id in (None, value):
            self.message_id = value
        else:
            self.empty = True

    def _narrow_seq(self, operator: str, value: object) -> None:
        if isinstance(value, (str, bytes)):
            return  # SQLite compares texts and numbers by its own rules.
        if not isinstance(value, (int, float)) or value != value:
            self.empty = True
            return
        # Limited first: `int` raises for infinity. Rounded down, which selects one event too many at most.
        bound = int(max(-1.0, min(value, 9e18)) // 1) if isinstance(value, float) else value
        if operator in (EQ, GE, GT):
            self.after = max(self.after, bound if operator == GT else bound - 1)
        if operator in (EQ, LE, LT):
            last = bound  # Also for `<`: SQLite compares again.
            self.until = last if self.until is None else min(self.until, last)


def kinds_of(wanted: HistoryPart) -> Collection[str]:
    return () if wanted.kinds is None else wanted.kinds
