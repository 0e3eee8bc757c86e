"""The tables of a journal in an SQL engine: the text of every statement that its row code runs, and how it runs them.

    row code (rows, load, bodies, index) ──▶ SqlTables ──▶ connection of the engine: apsw.Connection for SQLite
                                                 ▲
                                    SqlDialect ──┘  an engine replaces the statements that it writes differently

The row code packs, checks and cuts into slices; it knows no engine. A second engine is one file: its Journal, with a
connection that has `execute`, its SqlDialect, and its schema. Values are bound to `?`; an engine with other marks
translates them in its `execute`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from unibus.errors import DAMAGED_HINT, StoreDamaged

Bound: TypeAlias = int | float | str | bytes | None
"""The types that are bound to the ? of a statement. An engine may accept more; our tables store these."""

_ROWS_PER_STATEMENT: Final = 250


class SqlConnection(Protocol):
    def execute(self, statement: str, values: Sequence[Bound] = (), /) -> Iterable[Any]: ...


def _replace(table: str, rows: str) -> str:
    return f"INSERT OR REPLACE INTO {table} VALUES {rows}"


@dataclass(frozen=True)
class SqlDialect:
    """The statements as SQLite has them. `{rows}` and `{marks}` are replaced by as many `?` as there are values."""

    # meta: numbers and texts by name
    meta: str = "SELECT key, value FROM meta"
    # log: a row is a group of changes
    last: str = "SELECT last FROM log ORDER BY seq DESC LIMIT 1"
    oldest: str = "SELECT min(seq) FROM log"
    insert_group: str = "INSERT INTO log VALUES (?, ?, ?, ?, ?)"
    group_at: str = "SELECT seq, last, crc, records FROM log WHERE seq <= ? ORDER BY seq DESC LIMIT 1"
    group_begin: str = "SELECT max(seq) FROM log WHERE seq <= ?"
    groups_after: str = "SELECT seq, last, crc, records FROM log WHERE seq >= ? AND last > ? ORDER BY seq"
    bytes_after: str = "SELECT sum(length(records)) FROM log WHERE seq > ?"
    oldest_groups: str = "SELECT last, at_ns, length(records) FROM log WHERE last <= ? ORDER BY seq LIMIT ?"
    prune_log: str = "DELETE FROM log WHERE last <= ?"
    # The snapshot
    entities: str = (
        "SELECT number, name, kind, sequence, dropped, settings, created_ns, updated_ns FROM entities ORDER BY number"
    )
    retired: str = "SELECT name, sequence FROM retired"
    messages: str = "SELECT key, crc, saved FROM messages ORDER BY key"
    body: str = "SELECT data, data_crc FROM messages WHERE key = ?"
    sessions: str = "SELECT entity, id, crc, saved FROM sessions"
    marks: str = "SELECT entity, kind, key, at_ns FROM marks ORDER BY at_ns"
    positions: str = "SELECT name, position FROM positions"
    has_batches: str = "SELECT count(*) FROM sqlite_schema WHERE name = 'batches'"
    batches: str = "SELECT age_ns, crc, saved FROM batches ORDER BY age_ns"
    delete_messages: str = "DELETE FROM messages WHERE key IN ({marks})"
    delete_sessions: str = "DELETE FROM sessions WHERE entity = ?"
    delete_marks: str = "DELETE FROM marks WHERE entity = ?"
    delete_old_marks: str = "DELETE FROM marks WHERE entity = ? AND kind = ? AND at_ns < ?"
    delete_positions: str = "DELETE FROM positions"
    delete_old_batches: str = "DELETE FROM batches WHERE age_ns <= ?"
    drop_entity: str = (
        "INSERT INTO entities VALUES (?, ?, 0, 0, 1, '{}', 0, 0) ON CONFLICT (number) DO UPDATE SET dropped = 1"
    )
    # Named history readers
    cursors: str = "SELECT name, seq FROM cursors"
    move_cursor: str = (
        "INSERT INTO cursors VALUES (?, ?, ?, 0)"
        " ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, at_ns = excluded.at_ns"
    )
    # The index of history by message id
    indexed_to: str = "SELECT max(last) FROM trace_blocks"
    bucket: str = "SELECT first, data FROM trace_index WHERE bucket = ? ORDER BY first"
    blocks_up_to: str = "SELECT first FROM trace_blocks WHERE last <= ?"
    delete_buckets: str = "DELETE FROM trace_index WHERE (bucket, first) IN (VALUES {rows})"
    delete_block: str = "DELETE FROM trace_blocks WHERE first = ?"
    # Any table: rows replace those with the same key. Made from the name of the table and the `?` of its rows.
    replace: Callable[[str, str], str] = _replace


SQLITE: Final = SqlDialect()


class SqlTables:
    """`name` is that of the file or database, for errors. One thread at a time uses it."""

    def __init__(self, connection: SqlConnection, name: str, dialect: SqlDialect = SQLITE) -> None:
        self.name = name
        self.sql = dialect
        self.execute = connection.execute

    def value(self, statement: str, values: Sequence[Bound] = ()) -> Any:
        """The first column of the first row; None if there is no row."""
        rows = list(self.execute(statement, values))  # To its end: a statement that is half read may hold a lock.
        return rows[0][0] if rows else None

    def replace(self, table: str, values: Sequence[Bound], width: int) -> None:
        """Many rows in few statements: each call into an engine may have to wait for the interpreter lock
        afterwards."""
        step = _ROWS_PER_STATEMENT * width
        for start in range(0, len(values), step):
            some = values[start : start + step]
            self.execute(self.sql.replace(table, _marks(len(some) // width, width)), some)

    def delete_messages(self, keys: Sequence[int]) -> None:
        """Idempotent: a row that never existed does no harm."""
        for start in range(0, len(keys), _ROWS_PER_STATEMENT):
            some = keys[start : start + _ROWS_PER_STATEMENT]
            self.execute(self.sql.delete_messages.format(marks=", ".join("?" * len(some))), some)

    def delete_buckets(self, places: Sequence[int]) -> None:
        self.execute(self.sql.delete_buckets.format(rows=_marks(len(places) // 2, 2)), places)


def _marks(rows: int, width: int) -> str:
    return ", ".join([f"({', '.join('?' * width)})"] * rows)


def damaged(name: str, what: str) -> StoreDamaged:
    return StoreDamaged(f"{name} is damaged: {what}", DAMAGED_HINT)
