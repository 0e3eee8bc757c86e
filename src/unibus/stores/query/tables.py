"""The four tables of a query, and which comparisons and orders each of them applies itself.

    messages      messages that exist ('pending', or 'failed' in a dead-letter queue), and completed ones that history
                  still has ('delivered')
    dead_letters  dead-lettered messages, with the reason
    events        history
    outgoing      messages in outgoing queues to other domains; empty as long as there are no links between domains

A comparison that a table applies only avoids reading: SQLite compares again, except for the status.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import apsw
import msgspec

from unibus.core.lifecycle.events import Event
from unibus.stores.query.cursors import EmptyCursor, EventCursor, MessageCursor
from unibus.stores.query.dead_letter_cursor import DeadLetterCursor
from unibus.stores.query.plan import EQ, GE, GT, IN, LE, LT, NE, QueryPlan, excludes_delivered
from unibus.stores.query.table_source import HISTORY_KEPT_MAX, TableSource

Cursor: TypeAlias = MessageCursor | DeadLetterCursor | EventCursor | EmptyCursor

MESSAGES: Final = {
    "id": "TEXT",
    "type": "TEXT",
    "source": "TEXT",
    "target": "TEXT",
    "payload": "TEXT",
    "timestamp": "TEXT",
    "priority": "INTEGER",
    "correlation_id": "TEXT",
    "routing_key": "TEXT",
    "ttl": "REAL",
    "transaction_id": "TEXT",
    "local_sequence": "INTEGER",
    "status": "TEXT",
    "channel": "TEXT",
    "state": "TEXT",
    "delivery_count": "INTEGER",
    "size": "INTEGER",
    "session_id": "TEXT",
    "trace_id": "TEXT",
    "enqueued_at": "TEXT",
    "expires_at": "TEXT",
    "consumer": "TEXT",
    "subject": "TEXT",
    "locked_until": "TEXT",
}
DEAD_LETTERS: Final = {
    "id": "TEXT",
    "original_message_id": "TEXT",
    "message_data": "TEXT",
    "failure_reason": "TEXT",
    "failure_timestamp": "TEXT",
    "retry_count": "INTEGER",
    "last_error": "TEXT",
    "channel": "TEXT",
    "source": "TEXT",
    "error_type": "TEXT",
    "attempts": "INTEGER",
    "sequence": "INTEGER",
    "description": "TEXT",
}
_NUMBERS: Final = frozenset({"seq", "sequence", "delivery_count", "size", "enqueued_us", "first_delivered_us"})
EVENTS: Final = {
    **{each.name: "INTEGER" if each.name in _NUMBERS else "TEXT" for each in msgspec.structs.fields(Event)},
    "ts_us": "INTEGER",
}
OUTGOING: Final = {
    "id": "TEXT",
    "message_id": "TEXT",
    "target_domain": "TEXT",
    "attempts": "INTEGER",
    "next_retry": "TEXT",
    "max_retries": "INTEGER",
    "status": "TEXT",
}
TABLES: Final[dict[str, dict[str, str]]] = {
    "messages": MESSAGES,
    "dead_letters": DEAD_LETTERS,
    "events": EVENTS,
    "outgoing": OUTGOING,
}

_OPERATORS: Final = {
    apsw.SQLITE_INDEX_CONSTRAINT_EQ: EQ,
    apsw.SQLITE_INDEX_CONSTRAINT_NE: NE,
    apsw.SQLITE_INDEX_CONSTRAINT_GT: GT,
    apsw.SQLITE_INDEX_CONSTRAINT_GE: GE,
    apsw.SQLITE_INDEX_CONSTRAINT_LT: LT,
    apsw.SQLITE_INDEX_CONSTRAINT_LE: LE,
}
_SELECTIVITY: Final = {"id": 1e-5, "message_id": 1e-5, "seq": 1e-1, "channel": 1e-1, "kind": 3e-1}


@dataclass(frozen=True)
class Ability:
    """The comparisons and orders that a table applies itself."""

    operators: Mapping[str, frozenset[str]] = field(default_factory=dict)
    whole_sets: frozenset[str] = frozenset()  # Takes all values of an IN at once.
    exact: frozenset[str] = frozenset()  # SQLite need not compare again.
    orders: frozenset[str] = frozenset()
    descends: bool = False
    rows: float = 1e6


_ABILITIES: Final[dict[str, Ability]] = {
    "messages": Ability(
        {
            "status": frozenset({EQ, NE}),
            "state": frozenset({EQ}),
            "channel": frozenset({EQ}),
            "id": frozenset({EQ}),
        },
        whole_sets=frozenset({"status", "state", "id"}),
        exact=frozenset({"status"}),
        orders=frozenset({"channel", "status"}),
        descends=True,
    ),
    "dead_letters": Ability({"channel": frozenset({EQ}), "id": frozenset({EQ})}, frozenset({"id"}), rows=1e4),
    "events": Ability(
        {"seq": frozenset({EQ, GT, GE, LT, LE}), "message_id": frozenset({EQ}), "kind": frozenset({EQ})},
        whole_sets=frozenset({"kind"}),
        orders=frozenset({"seq"}),
    ),
    "outgoing": Ability(rows=1.0),
}


class QueryTable:
    """One table for one query. SQLite may consider several plans; each gets a number, and a cursor gets one of them."""

    def __init__(self, name: str, source: TableSource) -> None:
        self.name = name
        self._source = source
        self._columns = tuple(TABLES[name])
        self._ability = _ABILITIES[name]
        self._plans: list[QueryPlan] = []

    def BestIndexObject(self, info: apsw.IndexInfo) -> bool:
        terms: list[tuple[str, str]] = []
        rows = self._ability.rows
        history = self.name == "messages"
        # SQLite calls this several times for one table, with other sets of usable comparisons, and takes the cheapest
        # plan. Each gets a number; `Filter` gets the number of the chosen one.
        for which in range(info.nConstraint):
            term = self._term(info, which)
            if term is None:
                continue
            terms.append(term)
            info.set_aConstraintUsage_argvIndex(which, len(terms))
            # Only an exact comparison may be left out by SQLite: for the others the table returns a superset.
            info.set_aConstraintUsage_omit(which, term[0] in self._ability.exact)
            rows *= _SELECTIVITY.get(term[0], 0.9)
            if excludes_delivered(*term, info.get_aConstraint_rhs(which)):
                history = False
        plan = QueryPlan(terms, *self._order(info, history))
        info.orderByConsumed = bool(plan.order)
        info.idxNum = len(self._plans)
        info.estimatedRows = max(1, int(rows))
        info.estimatedCost = rows * (2.0 if history else 1.0)
        self._plans.append(plan)
        # False rejects the plan: SQLite then fails to compile, which ends a query that is over its limit.
        return not self._source.guard.is_over()

    def _term(self, info: apsw.IndexInfo, which: int) -> tuple[str, str] | None:
        """The comparison, if the table applies it."""
        column = info.get_aConstraint_iColumn(which)
        operator = _OPERATORS.get(info.get_aConstraint_op(which))
        if column < 0 or operator is None or not info.get_aConstraint_usable(which):
            return None
        name = self._columns[column]
        if operator not in self._ability.operators.get(name, ()):
            return None
        # With another collation equal texts may differ in bytes, and the table compares bytes.
        if info.get_aConstraint_collation(which) != "BINARY":
            return None
        if name in self._ability.whole_sets and info.get_aConstraintUsage_in(which):
            # SQLite then passes all values of the IN in one scan, instead of scanning the table once for each.
            info.set_aConstraintUsage_in(which, True)
            return name, IN
        return name, operator

    def _order(self, info: apsw.IndexInfo, history: bool) -> tuple[list[str], bool]:
        """The columns of the order, if the table can return its rows in it; else none."""
        columns = [info.get_aOrderBy_iColumn(which) for which in range(info.nOrderBy)]
        descending = {info.get_aOrderBy_desc(which) for which in range(info.nOrderBy)}
        names = [self._columns[column] if column >= 0 else "" for column in columns]
        # All columns in the same direction, and only columns that are constant within a segment: then sorting the
        # segments sorts the rows.
        if len(descending) != 1 or not self._ability.orders.issuperset(names):
            return [], False
        if True in descending and not self._ability.descends:
            return [], False
        if history and "channel" in names and self._source.history_size() > HISTORY_KEPT_MAX:  # SQLite sorts it then.
            return [], False
        return names, True in descending

    def Open(self) -> Cursor:
        return _CURSORS[self.name](self._source, self._plans)

    def Disconnect(self) -> None: ...

    def Destroy(self) -> None: ...


_CURSORS: Final[dict[str, Callable[[TableSource, list[QueryPlan]], Cursor]]] = {
    "messages": MessageCursor,
    "dead_letters": DeadLetterCursor,
    "events": lambda source, plans: EventCursor(source, plans, tuple(EVENTS)),
    "outgoing": lambda source, plans: EmptyCursor(),
}


class Module:
    """Registers the tables with SQLite. They exist without a CREATE statement."""

    def __init__(self, source: TableSource) -> None:
        self._source = source

    def Connect(
        self, connection: apsw.Connection, module: str, database: str, table: str, *arguments: object
    ) -> tuple[str, QueryTable]:
        columns = ", ".join(f"{name} {kind}" for name, kind in TABLES[module].items())
        return f"CREATE TABLE {module}({columns})", QueryTable(module, self._source)

    Create = Connect
