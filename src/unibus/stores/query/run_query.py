"""One query from its text to its rows, for threads and for event loops.

    text ──▶ look_at: SQLite compiles it, the authorizer rejects what is not allowed
         ──▶ run: EXPLAIN bounds the length of a value ──▶ rows, with the guard called every few steps ──▶ QueryResult

Each query has its own SQLite, so queries of several threads do not share a connection. An error of the text is
QueryInvalid, and a limit that was reached is QueryStopped.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import apsw

from unibus.errors import BusError, QueryInvalid, QueryStopped, UsageError
from unibus.limits import QUERY_ROWS_MAX
from unibus.near_names import near_name
from unibus.stores.query.formatting import instant_text
from unibus.stores.query.functions import FUNCTIONS
from unibus.stores.query.guard import CANCELLED, MEMORY, SIZE, TIME, Guard
from unibus.stores.query.result import QueryResult, Value
from unibus.stores.query.sandbox import Parameters, Sandbox, SandboxStatement
from unibus.stores.query.table_source import TableSource
from unibus.stores.query.tables import TABLES
from unibus.stores.seam.store_view import StoreView

_MISSING: Final = re.compile(r"no such (column|table|function): (\S+)")
_QUOTES: Final = "write text in 'single quotes'"
_WORD: Final = re.compile(r"\w+")
_MEANT: Final = {
    "body": "payload",
    "data": "payload",
    "queue": "channel",
    "topic": "channel",
    "entity": "channel",
    "message_id": "id",
    "error": "last_error",
}
"""Names that the rest of the library, or another broker, has for a column."""


class Query:
    """A query: checked when it is created, run once. `clock` counts seconds; the limits are those of limits.py."""

    def __init__(
        self,
        view: StoreView,
        sql: object,
        parameters: object,
        time_limit: object,
        rows_max: object,
        memory_mb: object,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(sql, str):
            raise QueryInvalid(f"a query must be text, not {type(sql).__name__}")
        self._view = view
        self._sql = sql
        # Checked when the query is created, in the caller's thread: a mistake is an error of the call, not of the run.
        self._parameters = checked_parameters(parameters)
        self._rows_max = int(_positive("rows_max", rows_max))
        if self._rows_max > QUERY_ROWS_MAX:
            raise UsageError(f"rows_max must be at most {QUERY_ROWS_MAX}, got {self._rows_max}")
        memory_bytes = int(_positive("memory_mb", memory_mb) * 1_000_000)
        self.guard = Guard(_positive("time_limit", time_limit), memory_bytes, clock, apsw.memory_used)

    def cancel(self) -> None:
        """Called from any thread: the result is not needed any more."""
        self.guard.cancel()

    def run(self) -> QueryResult:
        sandbox = Sandbox(TableSource(self._view, self.guard), self.guard)
        try:
            statement = self._looked_at(sandbox)
            rows, truncated = sandbox.run(statement, self._parameters, self._rows_max)
        except apsw.Error as error:
            raise self._translated(error, sandbox) from error
        finally:
            # Also after an error: a virtual table refers to the store, and the connection must not keep it alive.
            sandbox.close()
        return QueryResult(statement.columns, rows, truncated, self.guard.seconds())

    def _looked_at(self, sandbox: Sandbox) -> SandboxStatement:
        """Compile the query. Other queries of the process may make it look too large, so only a third failure
        counts."""
        for _ in range(2):
            try:
                return sandbox.look_at(self._sql, self._parameters)
            except apsw.AuthError:
                # Memory is counted for the whole process. A journal that allocates meanwhile looks like growth of this
                # query.
                if self.guard.reason != SIZE:
                    raise
                self.guard.forgive()
        return sandbox.look_at(self._sql, self._parameters)

    async def run_aside(self) -> QueryResult:
        """Run in a thread, so that the loop continues. Cancelling the task stops the query."""
        try:
            return await asyncio.to_thread(self.run)
        except asyncio.CancelledError:
            # The thread cannot be interrupted: it ends by itself at its next tick.
            self.cancel()
            raise

    def _translated(self, error: apsw.Error, sandbox: Sandbox) -> BusError:
        # First: SQLite reports a stopped query as "interrupted" or, while it compiles, as not authorized.
        if self.guard.reason:
            return stopped(self.guard.reason)
        if sandbox.denied:
            return QueryInvalid(sandbox.denied, "SELECT from " + ", ".join(TABLES))
        if isinstance(error, (apsw.TooBigError, apsw.NoMemError)):
            return QueryStopped(f"a value or the query itself is too large: {error}", "ask for less, or in parts")
        return QueryInvalid(str(error), hint_for(str(error), self._sql))


def stopped(reason: str) -> QueryStopped:
    what, hint = {
        CANCELLED: ("the query was cancelled", ""),
        TIME: ("the query took longer than its time limit", "ask for less, or set time_limit="),
        MEMORY: ("the query needs more memory than its limit", "ask for less, or set memory_mb="),
        SIZE: ("the query grows too large while it is compiled", "name columns of subqueries less often"),
    }[reason]
    return QueryStopped(what, hint)


def hint_for(text: str, sql: str) -> str:
    """For SQLite's error about an unknown name: a similar name, or else the names that could be in its place."""
    found = _MISSING.search(text)
    if found is None:
        return ""
    kind, name = found[1], found[2].rpartition(".")[2]
    if kind == "column":
        return _column_hint(name, sql)
    names = list(TABLES) if kind == "table" else sorted(FUNCTIONS)
    near = _did_you_mean(name, names)
    return near or (f"the tables are {', '.join(names)}" if kind == "table" else "")


def _column_hint(name: str, sql: str) -> str:
    # SQLite's text does not say which table the column was looked for in: take all that the query names.
    words = set(_WORD.findall(sql.casefold()))
    tables = [table for table in TABLES if table in words]
    near = _did_you_mean(name.strip('"'), [column for table in tables for column in TABLES[table]])
    if not near and name.startswith('"'):
        return _QUOTES
    listed = [f"the columns of {table} are {', '.join(TABLES[table])}" for table in tables]
    return near or "; ".join([*(listed or [f"SELECT from {', '.join(TABLES)}"]), _QUOTES])


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    meant = near_name(name.casefold(), known, _MEANT)
    return f"did you mean {meant}?" if meant in known else ""


def checked_parameters(given: object) -> Parameters:
    """Values for ? and :name. A datetime becomes the text that the tables have."""
    if isinstance(given, Mapping):
        return {str(name): _bindable(value) for name, value in given.items()}
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise QueryInvalid(
            f"parameters must be a list, a tuple or a dictionary, not {type(given).__name__}",
            "one value alone: (value,)",
        )
    return [_bindable(value) for value in given]


def _bindable(value: object) -> Value:
    if isinstance(value, datetime):
        return instant_text(value)
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise QueryInvalid("an integer parameter of the query does not fit into 64 bits", "pass it as text")
        return value
    raise QueryInvalid(
        f"a {type(value).__name__} cannot be a parameter of a query", "use text, numbers, bytes, None or a datetime"
    )


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise UsageError(f"{name} must be a positive number, got {value!r}")
    return value
