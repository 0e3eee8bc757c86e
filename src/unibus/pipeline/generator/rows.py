"""Generated events as columns of numbers: sorted by time, then numbered.

A row refers to its message by `uid`, a number that is not written. Sequences and log numbers follow from the order of
all rows, so they are assigned here: `born` marks a row that stores a message, and takes the next sequence of its
channel. Rows that were added together and have the same time stay together and in their order, like a batch of a store.
Rows after the current slice of time are kept in memory: these are the messages in flight, and no more.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unibus.capture.schema import KIND_CODES
from unibus.pipeline.generator.world import Ints

Values = NDArray[np.signedinteger] | int
Row = dict[str, NDArray[np.signedinteger]]

COLUMNS: Final[dict[str, tuple[type[np.signedinteger], int]]] = {
    "ts": (np.int64, 0),
    "kind": (np.int8, 0),
    "chan": (np.int16, 0),
    "uid": (np.int64, 0),
    "born": (np.int64, 0),
    "place": (np.int64, 0),
    "msg": (np.int64, -1),
    "size": (np.int32, -1),
    "session": (np.int32, 0),
    "count": (np.int32, -1),
    "enqueued": (np.int64, 0),
    "first": (np.int64, 0),
    "reason": (np.int8, 0),
    "signature": (np.int8, 0),
    "consumer": (np.int16, 0),
    "attr": (np.int8, 0),
    "value": (np.int64, 0),
    "other": (np.int64, 0),
    "other_chan": (np.int16, 0),
    "other_place": (np.int64, 0),
}
"""Name -> type and default. `place` is the sequence, 0 until it is assigned."""

ATTRS: Final = (
    *("", "until_us", "visible_us", "copies", "source_seq", "source", "new_sequence", "dedup_key", "key", "moved"),
    *("declared", "position"),
)
"""The attrs of a row, beside the priority; a row has the index in this tuple."""
ATTR: Final = {name: number for number, name in enumerate(ATTRS)}

LAST_SEQUENCE: Final = tuple(
    KIND_CODES[kind] for kind in ("duplicate", "session_taken", "session_left", "session_stated", "declared")
)
"""Kinds whose sequence is not that of a message, but the last one that their entity has used."""


class GeneratedRows:
    """Rows in the order in which they were added, which is kept among rows of the same time."""

    def __init__(self) -> None:
        self._parts: list[Row] = []

    def add(self, kind: str, ts: Ints, columns: Mapping[str, Values]) -> None:
        if len(ts):
            self._parts.append(filled(kind, ts, columns))

    def add_together(self, *parts: Row, keep: NDArray[np.bool_] | None = None) -> None:
        """Interleave the parts: the first row of each, then the second of each, as batches of a store.

        `keep` has a row for each row and a column for each part: whether it exists.
        """
        woven = {name: np.stack([part[name] for part in parts], axis=1) for name in COLUMNS}
        flat = {name: values.ravel() if keep is None else values[keep] for name, values in woven.items()}
        self._parts.append(flat)

    def take(self, before: Row | None) -> Row:
        parts = self._parts if before is None else [before, *self._parts]
        self._parts = []
        if not parts:
            return {name: np.zeros(0, kind) for name, (kind, _default) in COLUMNS.items()}
        return {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}


def filled(kind: str, ts: Ints, columns: Mapping[str, Values]) -> Row:
    row: Row = {}
    for name, (type_, default) in COLUMNS.items():
        given = columns.get(name, default)
        row[name] = np.full(len(ts), given, type_) if isinstance(given, int) else given.astype(type_)
    row["ts"] = ts
    row["kind"] = np.full(len(ts), KIND_CODES[kind], np.int8)
    return row


class RowOrder:
    """The log of one domain: assigns sequences and log numbers, one slice of time after the other."""

    def __init__(self, channels: int) -> None:
        self.last = 0
        self._later: Row | None = None
        self._used = np.zeros(channels, np.int64)

    def up_to(self, rows: GeneratedRows, until_us: int) -> tuple[Ints, Row]:
        """The numbers and the rows before that time that were not returned yet."""
        pool = rows.take(self._later)
        by_time = np.argsort(pool["ts"], kind="stable")
        cut = int(np.searchsorted(pool["ts"][by_time], until_us))
        now = {name: values[by_time[:cut]] for name, values in pool.items()}
        self._later = {name: values[by_time[cut:]] for name, values in pool.items()}
        seq = self.last + 1 + np.arange(cut)
        self.last += cut
        self._assign_sequences(now, self._later)
        return seq, now

    def _assign_sequences(self, now: Row, later: Row) -> None:
        running = self._running(now)
        born = now["born"]
        stored = np.flatnonzero(born)
        if len(stored):
            lowest = int(born[stored].min())
            known = np.zeros(int(born[stored].max()) - lowest + 1, np.int64)
            known[born[stored] - lowest] = running[stored]
            for rows in (now, later):
                _resolve(rows["uid"], rows["place"], known, lowest)
                _resolve(rows["other"], rows["other_place"], known, lowest)
        names_none = np.isin(now["kind"], LAST_SEQUENCE)
        now["place"][names_none] = running[names_none]
        renamed = np.flatnonzero(now["attr"] == ATTR["new_sequence"])
        fresh = renamed[born[renamed] > 0]
        now["value"][renamed] = now["place"][renamed]
        now["value"][fresh] = running[fresh]

    def _running(self, now: Row) -> Ints:
        """How many sequences the channel of each row has used up to and including the row."""
        channel = now["chan"]
        by_channel = np.argsort(channel, kind="stable")  # NumPy sorts 16 bits by radix, which is faster.
        counts = np.bincount(channel, minlength=len(self._used))
        stored = np.cumsum((now["born"] > 0)[by_channel])
        ends = np.cumsum(counts)
        before = np.concatenate(([0], stored))[ends - counts]
        running = np.empty(len(channel), np.int64)
        running[by_channel] = stored + np.repeat(self._used - before, counts)
        self._used = self._used + np.concatenate(([0], stored))[ends] - before
        return running


def _resolve(uids: NDArray[np.signedinteger], places: NDArray[np.signedinteger], known: Ints, lowest: int) -> None:
    wanted = np.flatnonzero((places == 0) & (uids >= lowest))
    wanted = wanted[uids[wanted] - lowest < len(known)]
    places[wanted] = known[uids[wanted] - lowest]
