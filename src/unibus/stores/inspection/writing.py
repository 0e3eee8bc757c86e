"""What a new store is written from: a salvaged state as the log without gaps and a snapshot of everything.

Recovery starts at the snapshot, so the log before it is history only: for traces, replay and SQL. How the files are
written is known to the folder of the store: the `write` of its row in schemes.py.

    files of the damaged store ── Salvage ──▶ state, repaired groups ──▶ log + snapshot of a new store, at another path

Nothing here changes the damaged store. A crash leaves a new store that is incomplete: the caller gives it its name only
after it is complete.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import MARK_PROCESSED, MARK_SENT, StoreState
from unibus.stores.engine.snapshot import row_of
from unibus.stores.inspection.salvage import Salvage
from unibus.stores.seam.journal import SnapshotSlice, Summary
from unibus.stores.seam.store_files import SalvagedStore, StoreFiles

_MESSAGES_AT_ONCE: Final = 500


def salvaged_store(salvage: Salvage, files: StoreFiles) -> SalvagedStore:
    return SalvagedStore(
        files.domain,
        salvage.history_from,
        salvage.state.known,
        _history(salvage, files),
        _parts(salvage, files),
        summary_of(salvage.state),
        files.readers(),
    )


def _history(salvage: Salvage, files: StoreFiles) -> Iterator[tuple[int, list[Change]]]:
    """The groups after the last gap, in their repaired form."""
    for group in files.groups(salvage.history_from - 1):
        if not group.problem:
            # Read a second time, instead of kept: the log may be larger than memory.
            yield group.first, list(salvage.repaired.get(group.first, group.changes))


def _parts(salvage: Salvage, files: StoreFiles) -> Iterator[SnapshotSlice]:
    entities = list(salvage.state.entities.values())
    # Entities first: the rows of messages refer to them by number.
    yield SnapshotSlice(entities=[row_of(each) for each in entities])
    entries = [entry for each in entities for entry in each.entries.values() if entry not in salvage.unreadable]
    for start in range(0, len(entries), _MESSAGES_AT_ONCE):
        some = entries[start : start + _MESSAGES_AT_ONCE]
        # The bodies of repaired copies are not in a record of their own, so the files cannot find them.
        data = {**files.bodies([entry for entry in some if entry not in salvage.bodies]), **_known(salvage, some)}
        yield SnapshotSlice(
            entries=[(entry.entity.number, entry.sequence, entry.as_saved(), data[entry]) for entry in some],
        )


def _known(salvage: Salvage, entries: list[StoredMessage]) -> Mapping[StoredMessage, bytes]:
    return {entry: salvage.bodies[entry] for entry in entries if entry in salvage.bodies}


def summary_of(state: StoreState) -> Summary:
    """Everything in a snapshot besides messages."""
    marks: list[tuple[int, int, str, int]] = []
    for entity in state.entities.values():
        for kind, window in ((MARK_SENT, entity.marks), (MARK_PROCESSED, entity.processed)):
            if window is not None:
                marks += [(entity.number, kind, key, at_ns) for key, at_ns in window.items()]
    return Summary(
        seq=state.seq,
        # No overlap: the state does not change while the snapshot is written, so no change has to be replayed over it.
        overlap=state.seq,
        entities=[row_of(each) for each in state.entities.values()],
        # Names of deleted entities: history still mentions their numbers.
        dropped=[(number, name) for number, name in state.known.items() if number not in state.entities],
        retired=dict(state.retired),
        # Only sessions with a state or a lock: the others follow from their messages.
        sessions={
            entity.number: [
                each.as_saved() for each in entity.sessions.values() if each.state is not None or each.token
            ]
            for entity in state.entities.values()
        },
        marks=marks,
        marks_over=[],
        positions=dict(state.positions),
        batches=list(state.batches.known.values()),
        batches_evicted_ns=state.batches.evicted_ns,
    )
