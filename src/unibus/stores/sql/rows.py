"""The rows of a journal in SQL tables: groups of changes in the log, and the tables of a snapshot."""

import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from unibus.core.lifecycle.state.changes import Applied, Change, SavedEntry, SavedSession
from unibus.errors import StoreVersion
from unibus.stores.seam.journal import EntityRow, SnapshotSlice, Summary
from unibus.stores.seam.log_end import OLDEST
from unibus.stores.sql.tables import Bound, SqlTables, damaged

SEQUENCE_BITS: Final = 40
SEQUENCE_MASK: Final = (1 << SEQUENCE_BITS) - 1
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


def save_part(tables: SqlTables, part: SnapshotSlice, last: int) -> None:
    """Write a slice of a snapshot, inside a transaction whose group ends with change `last`: no row is newer than it.

    `overlap` is raised in the same transaction, so recovery knows that rows may be newer than the snapshot.
    """
    # Unlike `snapshot`, which only the last slice sets: a crash after this slice leaves rows that are newer than the
    # snapshot, and recovery must know up to where.
    tables.replace("meta", ("overlap", last), 2)
    _insert_entities(tables, part.entities)
    rows: list[Bound] = []
    for entity, sequence, saved, data in part.entries:
        packed = pack(saved)
        rows += (entity << SEQUENCE_BITS | sequence, zlib.crc32(packed), zlib.crc32(data), packed, data)
    tables.replace("messages", rows, 5)
    keys = [entity << SEQUENCE_BITS | sequence for entity, sequence in part.gone]
    # Idempotent, as all of a slice: one that is repeated does no harm.
    tables.delete_messages(keys)


def save_summary(tables: SqlTables, summary: Summary, log_bytes: int, oldest: int) -> None:
    """Write the last slice: from this transaction on, recovery starts at this snapshot. `oldest` is the first change of
    the log."""
    _save_entities(tables, summary)
    _save_sessions(tables, summary)
    tables.replace("marks", [value for mark in summary.marks for value in mark], 4)
    for number, kind, over_ns in summary.marks_over:
        tables.execute(tables.sql.delete_old_marks, (number, kind, over_ns))
    tables.execute(tables.sql.delete_positions)
    tables.replace("positions", [value for pair in summary.positions.items() for value in pair], 2)
    _save_batches(tables, summary)
    meta = ("snapshot", summary.seq, "overlap", summary.overlap, "log_bytes", log_bytes, OLDEST, oldest)
    tables.replace("meta", meta, 2)


def _save_batches(tables: SqlTables, summary: Summary) -> None:
    rows: list[Bound] = []
    for batch in summary.batches:
        packed = pack(batch)
        rows += (batch.age_ns, zlib.crc32(packed), packed)
    tables.replace("batches", rows, 3)
    tables.execute(tables.sql.delete_old_batches, (summary.batches_evicted_ns,))
    tables.replace("meta", (BATCHES_EVICTED, summary.batches_evicted_ns), 2)


def _save_entities(tables: SqlTables, summary: Summary) -> None:
    _insert_entities(tables, summary.entities)
    for number, name in summary.dropped:
        # An entity that was created and deleted between two snapshots has no row yet, and history needs its name.
        tables.execute(tables.sql.drop_entity, (number, name))
        tables.execute(tables.sql.delete_sessions, (number,))
        tables.execute(tables.sql.delete_marks, (number,))
    tables.replace("retired", [value for pair in summary.retired.items() for value in pair], 2)


def _insert_entities(tables: SqlTables, entities: Sequence[EntityRow]) -> None:
    rows: list[Bound] = []
    for row in entities:
        settings = msgspec.json.encode(row.settings).decode()
        rows += (row.number, row.name, row.kind, row.sequence, 0, settings, row.created_ns, row.updated_ns)
    tables.replace("entities", rows, 8)


def _save_sessions(tables: SqlTables, summary: Summary) -> None:
    for number, sessions in summary.sessions.items():
        tables.execute(tables.sql.delete_sessions, (number,))
        rows: list[Bound] = []
        for saved in sessions:
            packed = pack(saved)
            rows += (number, saved.session_id, zlib.crc32(packed), packed)
        tables.replace("sessions", rows, 4)
