"""The SQLite database of one query, in memory, which can only read our tables.

Four defences, each of which alone stops most attacks: the database is empty and has no files; the authorizer allows
only what it lists; the limits of SQLite are low; and a guard is called while the query runs.

SQLite does two things without calling us, so they are bounded in advance. It copies the columns of a subquery to every
place where they are named (growth.py). And it builds a row without calling the guard: so the length of a value is
limited to the memory divided by the number of registers that can hold one (`EXPLAIN` shows how many).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

import apsw

from unibus.errors import QueryInvalid
from unibus.stores.query import functions
from unibus.stores.query.growth import growth_of
from unibus.stores.query.guard import STEPS_PER_TICK, Guard
from unibus.stores.query.result import Value
from unibus.stores.query.table_source import TableSource
from unibus.stores.query.tables import TABLES, Module

Parameters: TypeAlias = Sequence[Value] | Mapping[str, Value]

SQL_BYTES_MAX: Final = 65_536
VALUE_BYTES_MAX: Final = 8_000_000
VALUE_BYTES_MIN: Final = 1_000

JSON_TABLES: Final = frozenset({"json_each", "json_tree"})

_LIMITS: Final = {
    apsw.SQLITE_LIMIT_SQL_LENGTH: SQL_BYTES_MAX,
    apsw.SQLITE_LIMIT_COLUMN: 100,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 100,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    apsw.SQLITE_LIMIT_VDBE_OP: 25_000,
    apsw.SQLITE_LIMIT_FUNCTION_ARG: 50,
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    # One LIKE takes time proportional to text times pattern, and the guard is not called meanwhile.
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    apsw.SQLITE_LIMIT_VARIABLE_NUMBER: 1_000,
    apsw.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_SETTINGS: Final = {
    apsw.SQLITE_DBCONFIG_DEFENSIVE: 1,
    apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_VIEW: 0,
    apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA: 0,
    # "text" in double quotes is an unknown name, not a text.
    apsw.SQLITE_DBCONFIG_DQS_DML: 0,
    apsw.SQLITE_DBCONFIG_DQS_DDL: 0,
}

# The instructions of SQLite's machine that store a value of any length in a register.
_AGGREGATES: Final = ("AggFinal", "AggInverse", "AggStep", "AggStep1", "AggValue")
_MAKERS: Final = ("Cast", "Concat", "Copy", "Function", "MakeRecord", "PureFunc", "String", "String8", "Variable")
_READERS: Final = ("Column", "RowData", "SorterData", "VColumn")
_HOLDERS: Final = frozenset((*_AGGREGATES, *_MAKERS, *_READERS))
_BLANK: Final = re.compile(r"(?:[\s;]|--[^\n]*(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z))*\Z")


class SandboxStatement:
    """What SQLite reports about a query before it runs."""

    def __init__(self, cursor: apsw.Cursor, text: str) -> None:
        self.text = text
        self.columns = tuple(name for name, _ in cursor.get_description())
        self.is_explanation = bool(cursor.is_explain)
        self.only_reads = cursor.is_readonly
        self.is_empty = not cursor.has_vdbe


class Sandbox:
    """Created for one query, closed after it."""

    def __init__(self, source: TableSource, guard: Guard) -> None:
        self.guard = guard
        self.denied = ""  # What the authorizer has rejected.
        self._growth = 1
        self._connection = connection = apsw.Connection(":memory:")
        connection.row_trace = connection.exec_trace = None  # The program may have installed hooks for all connections.
        # Every other module of the SQLite library would be a table of its own: files, pages of the database,
        # statistics.
        connection.drop_modules(JSON_TABLES)
        # A sort that does not fit into the cache would otherwise write messages to a temporary file. The guard bounds
        # the memory.
        connection.execute("PRAGMA temp_store = MEMORY")
        for option, value in _SETTINGS.items():
            connection.config(option, value)
        for limit, most in _LIMITS.items():
            connection.limit(limit, most)
        self._set_longest(VALUE_BYTES_MAX)
        functions.install(connection, lambda: self._longest)
        module = cast("apsw.VTModule", Module(source))
        for name in TABLES:
            connection.create_module(name, module, use_bestindex_object=True, eponymous_only=True, read_only=True)
        # Last, because the statements above would be rejected. From here on only text of the caller is compiled.
        connection.authorizer = self._authorize
        connection.set_progress_handler(guard.tick, STEPS_PER_TICK)

    def close(self) -> None:
        self._connection.close(True)

    def _set_longest(self, longest: int) -> None:
        self._longest = longest
        self._connection.limit(apsw.SQLITE_LIMIT_LENGTH, longest)

    # What a query may do

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
    ) -> int:
        allowed = False
        if action == apsw.SQLITE_SELECT:
            # Called once for each SELECT while SQLite compiles: the only chance to stop a query that grows.
            allowed = self.guard.may_grow(self._growth)
        elif action == apsw.SQLITE_READ:
            allowed = is_ours(first or "", second or "")
        elif action == apsw.SQLITE_FUNCTION:
            allowed = (second or "").lower() in functions.FUNCTIONS
        elif action == apsw.SQLITE_RECURSIVE:
            allowed = True
        # A rejection because of a limit is reported as that limit.
        if not allowed and not self.guard.reason:
            self.denied = denial(action, first, second)
        return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY

    def look_at(self, sql: str, parameters: Parameters) -> SandboxStatement:
        """Let SQLite compile the query, without running it."""
        # SQLite would end the text there and ignore the rest, which could hide a second statement.
        if "\0" in sql:
            raise QueryInvalid("the query has a zero byte in it")
        # Before SQLite sees the text: the authorizer needs the factor at its first call.
        self._growth = growth_of(sql)
        self.guard.mark()
        looks: list[SandboxStatement] = []

        def look(cursor: apsw.Cursor, text: str, bindings: object) -> bool:
            # Called after the statement is compiled and before its first step. False aborts, so nothing runs here.
            looks.append(SandboxStatement(cursor, text))
            return False

        cursor = self._connection.cursor()
        cursor.exec_trace = look
        try:
            cursor.execute(sql, parameters)
        except apsw.ExecTraceAbort:
            pass
        finally:
            cursor.close(True)
        if not looks or looks[0].is_empty:
            raise QueryInvalid(
                "the query is empty", 'for instance: "SELECT channel, count(*) FROM messages GROUP BY 1"'
            )
        if not looks[0].only_reads or not looks[0].columns:
            raise QueryInvalid("a query can only read", "use SELECT")
        # `text` is what SQLite took as the first statement. Only blanks and comments may follow it.
        if not _BLANK.match(sql, len(looks[0].text)):
            raise QueryInvalid("the query has more than one statement", "use one SELECT at a time")
        self._growth = 0  # Its size is known now, and it is compiled the same way again.
        return looks[0]

    # Running

    def run(
        self, statement: SandboxStatement, parameters: Parameters, rows_max: int
    ) -> tuple[list[tuple[Value, ...]], bool]:
        """The rows, and whether there were more."""
        if not statement.is_explanation:
            self._bound_values(statement, parameters)
        rows: list[tuple[Value, ...]] = []
        cursor = self._connection.cursor()
        try:
            # Row by row: the guard counts what is kept here before the next one is made.
            for row in cursor.execute(statement.text, parameters):
                # One row more than the limit was made: that proves that there are more.
                if len(rows) >= rows_max:
                    return rows, True
                self.guard.keep(size_of(row))
                rows.append(row)
            # A cursor that is stopped may end early as if there were no more rows: never return these as the whole
            # result.
            if self.guard.is_over():
                raise apsw.InterruptError("stopped")
        finally:
            cursor.close(True)
        return rows, False

    def _bound_values(self, statement: SandboxStatement, parameters: Parameters) -> None:
        explained = self._connection.execute(f"EXPLAIN {statement.text}", parameters)
        holders = sum(1 for row in explained if row[1] in _HOLDERS)
        # If every register held a value of this length, they would just fill the memory of the query.
        fair = self.guard.memory_bytes // max(1, holders)
        self._set_longest(max(VALUE_BYTES_MIN, min(fair, VALUE_BYTES_MAX)))


def is_ours(table: str, column: str) -> bool:
    """Without a column it may also be the name of a subquery. SQLite's own tables are never ours."""
    name = table.lower()
    if name in TABLES or name in JSON_TABLES:
        return True
    return not column and not name.startswith(("sqlite_", "pragma_"))


def denial(action: int, first: str | None, second: str | None) -> str:
    if action == apsw.SQLITE_FUNCTION:
        return f"the function {second}() is not allowed in queries"
    if action == apsw.SQLITE_READ:
        return f"a query cannot read {first}"
    name = str(apsw.mapping_authorizer_function[action]).removeprefix("SQLITE_").replace("_", " ")
    return f"a query can only read: {name} is not allowed"


def size_of(row: Sequence[object]) -> int:
    """About the memory of a row."""
    return 120 + sum(56 + (len(value) if isinstance(value, (str, bytes)) else 0) for value in row)
