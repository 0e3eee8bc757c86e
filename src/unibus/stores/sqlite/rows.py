"""The rows of the SQLite journal: groups of changes in the log, and the tables of a snapshot."""

import zlib
from collections.abc import Sequence
from typing import Final, TypeAlias

import apsw
import msgspec

from unibus.core.lifecycle.state.changes import Applied, Change, SavedEntry, SavedSession
from unibus.errors import StoreVersion
from unibus.stores.seam.journal import EntityRow, SnapshotSlice, Summary
from unibus.stores.seam.log_end import OLDEST
from unibus.stores.sqlite.file import damaged

Bound: TypeAlias = int | float | str | bytes | None
"""The types that are bound to the ? of a statement. apsw accepts more; our tables store these."""

SEQUENCE_BITS: Final = 40
SEQUENCE_MASK: Final = (1 << SEQUENCE_BITS) - 1
_ROWS_PER_STATEMENT: Final = 250
_CRC_QUICK_BYTES: Final = 200_000
_CRC_STEP_BYTES: Final = 5_000

BATCHES_EVICTED: Final = "batches_evicted_ns"

pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(list[Change]).decode
unpack_entry: Final = msgspec.msgpack.Decoder(SavedEntry).decode
unpack_batch: Final = msgspec.msgpack.Decoder(Applied).decode
unpack_session: Final = msgspec.msgpack.Decoder(SavedSession).decode


def checksum(records: bytes) -> int:
    """The CRC of a row. In small steps while that is quick: above 5 KB zlib releases the interpreter lock, and a thread
    that computes would keep it for longer than the whole calculation takes."""
    if len(records) > _CRC_QUICK_BYTES:
        return zlib.crc32(records)
    crc = 0
    for start in range(0, len(records), _CRC_STEP_BYTES):
        crc = zlib.crc32(records[start : start + _CRC_STEP_BYTES], crc)
    return crc


def changes_of(path: str, seq: int, last: int, crc: int, records: bytes) -> list[Change]:
    """The changes of one row of the log. Raises StoreDamaged or StoreVersion, with the numbers of the changes."""
    # The type is checked first: SQLite stores any type in any column, and a damaged page may say that it is text.
    if not isinstance(records, bytes) or zlib.crc32(records) != crc:
        raise damaged(path, f"the log, changes {seq} to {last}")
    try:
        changes = _unpack(records)
    except msgspec.DecodeError as error:
        raise StoreVersion(
            f"{path} has changes {seq} to {last} of a kind that this version does not know: {error}",
            "install the newer unibus; nothing was changed",
        ) from error
    if len(changes) != last - seq + 1:
        raise damaged(path, f"the log, changes {seq} to {last}")
    return changes


def save_part(connection: apsw.Connection, part: SnapshotSlice, last: int) -> None:
    """Write a slice of a snapshot, inside a transaction whose group ends with change `last`: no row is newer than it.

    `overlap` is raised in the same transaction, so recovery knows that rows may be newer than the snapshot.
    """
    # Unlike `snapshot`, which only the last slice sets: a crash after this slice leaves rows that are newer than the
    # snapshot, and recovery must know up to where.
    insert(connection, "meta", ("overlap", last), 2)
    _insert_entities(connection, part.entities)
    rows: list[Bound] = []
    for entity, sequence, saved, data in part.entries:
        packed = pack(saved)
        rows += (entity << SEQUENCE_BITS | sequence, zlib.crc32(packed), zlib.crc32(data), packed, data)
    insert(connection, "messages", rows, 5)
    keys = [entity << SEQUENCE_BITS | sequence for entity, sequence in part.gone]
    for start in range(0, len(keys), _ROWS_PER_STATEMENT):
        some = keys[start : start + _ROWS_PER_STATEMENT]
        # Idempotent: a slice that is repeated, or a row that never existed, does no harm.
        connection.execute(f"DELETE FROM messages WHERE key IN ({', '.join('?' * len(some))})", some)


def save_summary(connection: apsw.Connection, summary: Summary, log_bytes: int, oldest: int) -> None:
    """Write the last slice: from this transaction on, recovery starts at this snapshot. `oldest` is the first change of
    the log."""
    _save_entities(connection, summary)
    _save_sessions(connection, summary)
    insert(connection, "marks", [value for mark in summary.marks for value in mark], 4)
    for number, kind, over_ns in summary.marks_over:
        connection.execute("DELETE FROM marks WHERE entity = ? AND kind = ? AND at_ns < ?", (number, kind, over_ns))
    connection.execute("DELETE FROM positions")
    insert(connection, "positions", [value for pair in summary.positions.items() for value in pair], 2)
    _save_batches(connection, summary)
    meta = ("snapshot", summary.seq, "overlap", summary.overlap, "log_bytes", log_bytes, OLDEST, oldest)
    insert(connection, "meta", meta, 2)


def _save_batches(connection: apsw.Connection, summary: Summary) -> None:
    rows: list[Bound] = []
    for batch in summary.batches:
        packed = pack(batch)
        rows += (batch.age_ns, zlib.crc32(packed), packed)
    insert(connection, "batches", rows, 3)
    connection.execute("DELETE FROM batches WHERE age_ns <= ?", (summary.batches_evicted_ns,))
    insert(connection, "meta", (BATCHES_EVICTED, summary.batches_evicted_ns), 2)


def _save_entities(connection: apsw.Connection, summary: Summary) -> None:
    _insert_entities(connection, summary.entities)
    for number, name in summary.dropped:
        # An entity that was created and deleted between two snapshots has no row yet, and history needs its name.
        connection.execute(
            "INSERT INTO entities VALUES (?, ?, 0, 0, 1, '{}', 0, 0) ON CONFLICT (number) DO UPDATE SET dropped = 1",
            (number, name),
        )
        connection.execute("DELETE FROM sessions WHERE entity = ?", (number,))
        connection.execute("DELETE FROM marks WHERE entity = ?", (number,))
    insert(connection, "retired", [value for pair in summary.retired.items() for value in pair], 2)


def _insert_entities(connection: apsw.Connection, entities: Sequence[EntityRow]) -> None:
    rows: list[Bound] = []
    for row in entities:
        settings = msgspec.json.encode(row.settings).decode()
        rows += (row.number, row.name, row.kind, row.sequence, 0, settings, row.created_ns, row.updated_ns)
    insert(connection, "entities", rows, 8)


def _save_sessions(connection: apsw.Connection, summary: Summary) -> None:
    for number, sessions in summary.sessions.items():
        connection.execute("DELETE FROM sessions WHERE entity = ?", (number,))
        rows: list[Bound] = []
        for saved in sessions:
            packed = pack(saved)
            rows += (number, saved.session_id, zlib.crc32(packed), packed)
        insert(connection, "sessions", rows, 4)


def insert(connection: apsw.Connection, table: str, values: Sequence[Bound], width: int) -> None:
    """Many rows in few statements: each call into SQLite may have to wait for the interpreter lock afterwards."""
    row = f"({', '.join('?' * width)})"
    step = _ROWS_PER_STATEMENT * width
    for start in range(0, len(values), step):
        some = values[start : start + step]
        rows = ", ".join([row] * (len(some) // width))
        connection.execute(f"INSERT OR REPLACE INTO {table} VALUES {rows}", some)
