"""Writes a new store from a salvaged state: the part of the log without gaps, and a snapshot of everything.

Recovery starts at the snapshot, so the log before it is history only: for traces, replay and SQL.

    files of the damaged store ── Salvage ──▶ state, repaired groups ──▶ log + snapshot of a new store, at another path

Nothing here changes the damaged store. A crash leaves a new store that is incomplete: the caller gives it its name only
after it is complete.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Final

from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import MARK_PROCESSED, MARK_SENT, StoreState
from unibus.stores.engine.snapshot import row_of
from unibus.stores.files.disk import Files, RealFiles
from unibus.stores.files.private import make_file
from unibus.stores.inspection.files import StoreFiles
from unibus.stores.inspection.salvage import Salvage
from unibus.stores.jsonfile.folder import begin, check_place
from unibus.stores.jsonfile.forms import instant_text
from unibus.stores.jsonfile.log import JsonLog
from unibus.stores.jsonfile.snapshot import Snapshots
from unibus.stores.jsonfile.state import CursorRecord, Cursors, write_cursors
from unibus.stores.seam.journal import SnapshotSlice, Summary
from unibus.stores.sqlite.file import SqliteTransaction, open_file
from unibus.stores.sqlite.rows import checksum, insert, pack, save_part, save_summary

_MESSAGES_AT_ONCE: Final = 500


def write_sqlite(path: str, salvage: Salvage, files: StoreFiles) -> None:
    make_file(path)
    connection = open_file(path, files.domain, None, False)
    try:
        # One transaction for everything, with a sync: the new file has no messages, or is complete.
        log_bytes = 0
        with SqliteTransaction(connection):
            for first, changes in _history(salvage, files):
                records = pack(changes)
                row = (first, first + len(changes) - 1, changes[0].at_ns, checksum(records), records)
                connection.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?)", row)
                log_bytes += len(records)
            for part in _parts(salvage, files):
                save_part(connection, part, salvage.state.seq)
            save_summary(connection, summary_of(salvage.state), log_bytes, salvage.history_from)
            now_ns = time.time_ns()
            cursors = [value for each in files.readers() for value in (each.name, each.seq, now_ns, each.missed)]
            insert(connection, "cursors", cursors, 4)
    finally:
        connection.close()


def write_jsonfile(folder: str, salvage: Salvage, files: StoreFiles) -> None:
    disk: Files = RealFiles()
    check_place(disk, folder)
    disk.make_folder(folder)
    begin(disk, folder, files.domain)
    log, snapshots = JsonLog(disk, f"{folder}/wal"), Snapshots(disk, folder)
    try:
        # The numbers of changes continue, so cursors and positions of readers stay valid.
        log.last = salvage.history_from - 1
        log.begin()
        for first, changes in _history(salvage, files):
            log.append(first, changes, salvage.state.known)
            if log.is_full():
                log.roll()
        # Before the snapshot covers it, as in the journal.
        log.sync()
        for part in _parts(salvage, files):
            snapshots.take(part)
        snapshots.finish(summary_of(salvage.state), instant_text(time.time_ns()))
        # Last: a crash before this line leaves a store without cursors, which the caller does not use.
        readers = {each.name: CursorRecord(each.seq, each.missed) for each in files.readers()}
        if readers or salvage.history_from > 1:
            write_cursors(disk, folder, Cursors(oldest=salvage.history_from, readers=readers))
    finally:
        log.close()
        snapshots.close()


def _history(salvage: Salvage, files: StoreFiles) -> Iterator[tuple[int, list[Change]]]:
    """The groups after the last gap, in their repaired form."""
    for group in files.groups(salvage.history_from - 1):
        # After `history_from` there is none; the check guards against a file that changes while it is read.
        if not group.problem:
            yield group.first, list(salvage.repaired.get(group.first, group.changes))


def _parts(salvage: Salvage, files: StoreFiles) -> Iterator[SnapshotSlice]:
    entities = list(salvage.state.entities.values())
    yield SnapshotSlice(entities=[row_of(each) for each in entities])
    # Listed once and read in pages: the messages of a store may be larger than memory.
    entries = [entry for each in entities for entry in each.entries.values() if entry not in salvage.unreadable]
    for start in range(0, len(entries), _MESSAGES_AT_ONCE):
        some = entries[start : start + _MESSAGES_AT_ONCE]
        # `salvage.bodies` wins: it has the data of copies whose record does not lead to it.
        data = {**files.bodies([entry for entry in some if entry not in salvage.bodies]), **_known(salvage, some)}
        yield SnapshotSlice(
            entries=[(entry.entity.number, entry.sequence, entry.as_saved(), data[entry]) for entry in some],
        )


def _known(salvage: Salvage, entries: list[StoredMessage]) -> Mapping[StoredMessage, bytes]:
    return {entry: salvage.bodies[entry] for entry in entries if entry in salvage.bodies}


def summary_of(state: StoreState) -> Summary:
    """Everything in a snapshot besides messages."""
    # All of them, not only new ones: the new store has no earlier snapshot.
    marks: list[tuple[int, int, str, int]] = []
    for entity in state.entities.values():
        for kind, window in ((MARK_SENT, entity.marks), (MARK_PROCESSED, entity.processed)):
            if window is not None:
                marks += [(entity.number, kind, key, at_ns) for key, at_ns in window.items()]
    return Summary(
        seq=state.seq,
        overlap=state.seq,
        entities=[row_of(each) for each in state.entities.values()],
        dropped=[(number, name) for number, name in state.known.items() if number not in state.entities],
        retired=dict(state.retired),
        sessions={
            entity.number: [
                each.as_saved() for each in entity.sessions.values() if each.state is not None or each.token
            ]
            for entity in state.entities.values()
        },
        marks=marks,
        marks_over=[],
        positions=dict(state.positions),
    )
