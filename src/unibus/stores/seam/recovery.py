"""Recovery, for every journal: load the snapshot, then replay the log after it.

    load_snapshot ──▶ S      the snapshot has every change up to S
                  ──▶ O      rows may also have changes up to O: a slice of an unfinished snapshot
    changes_after(S)  S+1 … O … last

From S+1 to O a change is replayed over rows that may have it already, or that are newer. That is safe because changes
are absolute (engine/snapshot.py), but a change may meet a message that is gone: so checks are strict only after O.

A gap in the log, a log that is too short, or a change that does not fit raises StoreDamaged. Nothing of such a store is
served, because acknowledged messages could be missing. The check of an open store runs the same code.
"""

from collections.abc import Generator
from contextlib import closing
from typing import Protocol

import msgspec

from unibus.core.lifecycle.invariants import sequence_problem
from unibus.core.lifecycle.state.apply import replay
from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.state import StoreState
from unibus.display import without_secrets
from unibus.errors import DAMAGED_HINT, StoreDamaged
from unibus.stores.seam.journal import Covered, Journal
from unibus.stores.seam.log_end import check_end


class RecoverableLog(Protocol):
    """What recovery reads: a Journal, or the file of one beside its owner."""

    url: str

    @property
    def last(self) -> int: ...

    def load_snapshot(self, state: StoreState) -> Covered: ...

    def changes_after(self, seq: int) -> Generator[tuple[int, Change], None, None]: ...


def recover(journal: Journal, state: StoreState) -> int:
    """Fill the empty state of a store that is opened. Returns the seq that the snapshot covers.

    Nothing is written before the whole log was accepted: a damaged store stays as it is, for a repair.
    """
    covered = load(journal, state)
    journal.append(state.seq + 1, (), True)
    return covered


def load(log: RecoverableLog, state: StoreState) -> int:
    """The same without writing anything."""
    # Data of replayed messages is dropped beyond the memory budget: the log or a row has it (`indexes.put`).
    state.replaying = True
    covered = log.load_snapshot(state)
    state.seq = covered.seq
    _replay(log, state, covered)
    # Everything is checked before the state is used: also the end of the log, which the state does not show. A snapshot
    # may cover the whole log, and then only history would be missing.
    check_end(without_secrets(log.url), log.last, covered.reached, covered.overlap)
    problem = sequence_problem(state)
    if problem:
        raise _damaged(log, problem)
    # Rows that were newer than the snapshot came before messages of the log: put them in the order of sequences.
    if covered.overlap > covered.seq:
        for entity in state.entities.values():
            entity.entries = dict(sorted(entity.entries.items()))
    # From here on every change must fit exactly, and new messages keep their data in memory.
    state.strict = True
    state.replaying = False
    return covered.seq


def _replay(log: RecoverableLog, state: StoreState, covered: Covered) -> None:
    overlap = covered.overlap
    state.strict = overlap <= covered.seq
    with closing(log.changes_after(covered.seq)) as changes:
        for expected, (seq, change) in enumerate(changes, covered.seq + 1):
            # A gap cannot come from a crash: groups are appended in order, and pruned from the old end.
            if seq != expected:
                raise _damaged(log, f"the log, from change {expected} to {seq - 1}: it is missing")
            try:
                replay(state, change)
            except StoreDamaged as error:
                raise _damaged(log, f"change {seq}: {error.what}") from error
            except (TypeError, ValueError, msgspec.MsgspecError) as error:
                raise _damaged(log, f"change {seq} is not what was written: {error}") from error
            if seq == overlap:
                state.strict = True
    state.end_group()


def _damaged(log: RecoverableLog, what: str) -> StoreDamaged:
    return StoreDamaged(f"{without_secrets(log.url)} is damaged: {what}", DAMAGED_HINT)
