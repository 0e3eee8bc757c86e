"""Open messages: those that have not ended, with their current state.

A message is open if an event names its (channel, sequence) as a stored message, and no event has ended it: no terminal
event, no activation under another sequence, no deletion of its channel. A sequence is used once, so the order of events
decides the state of a message, but never whether it is open: open = named and not ended.

The row of an open message has
- its properties, from the first event that has them. If it was sent before the capture began, some are unknown, and
  `enqueued_at` is null;
- its state: `state` as in the store, by its last event; `due_at`, when its lock ends or it becomes visible;
- its deliveries: the first one, how many, the last consumer, the reason of the last return.

A message whose last event is in a range that was not read (table quarantine) stays open.

Parts. Each event is a part of a row, and so is the row of an earlier batch. `merged` combines the parts of one key in
the order of `last_seq`, and leaves out keys that have ended. That is associative: it is done for each segment, each
task and each batch, and the result does not depend on how the events were split.
"""

from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from unibus.capture.schema import CAME, DROPS, KIND_CODES, RENAMES, STATES, TERMINAL
from unibus.pipeline.jobs.names import codes_of, flags_of, kind_names
from unibus.pipeline.storage.tables import MESSAGES, MOMENT

_FIRST: Final = (
    *("domain", "channel", "message_id", "correlation_id", "trace_id", "session_id", "size"),
    *("enqueued_at", "first_delivered_at"),
)
_LAST: Final = ("delivery_count", "consumer", "reason")
_OF_LAST: Final = ("due_at", "last_at", "last_kind", "last_seq")
PART: Final = pa.schema(
    [MESSAGES.schema.field(name) for name in ("channel_key", "sequence", *_FIRST, *_LAST, *_OF_LAST, "was_deferred")]
)
"""A part of a row. _FIRST: the first value that is not null. _LAST: the last value that is not null. _OF_LAST: from the
last part, also if it is null."""

KEYS: Final = pa.schema([("channel_key", pa.int64()), ("sequence", pa.int64())])
DROPPED: Final = pa.schema([*KEYS, ("at", MOMENT), ("seq", pa.int64())])
"""All messages of the channel up to the sequence are deleted."""

_ENDS: Final = flags_of(TERMINAL)
_STORED: Final = flags_of(frozenset(STATES) - TERMINAL)
_CAME: Final = flags_of(CAME)
_FLAGS_PER_CODE: Final = 128
_DUE_BY_LOCK: Final = codes_of(frozenset({"delivered", "renewed"}))
_DUE_BY_DELAY: Final = codes_of(frozenset({"scheduled", "copied", "returned"}))
Numbers = npt.NDArray[np.int64]


def opened_of(events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Of one segment: parts of messages that have not ended in it, and the ends of messages that began before it.

    Keys are compared as numbers first: most messages begin and end in one segment, and need nothing else.
    """
    kind = events["kind_code"].to_numpy().view(np.uint8)
    keys = events.select(KEYS.names).cast(KEYS)
    renamed, new_keys = _renamings(events, kind)
    codes, new_codes = _codes(keys, new_keys)
    over = _ENDS[kind]
    over[renamed] = True
    gone = codes[over]
    parts = _parts(events.filter(pa.array(_STORED[kind] & ~_among(codes, gone))))
    if len(renamed):
        begun = events.take(renamed)
        begun = begun.set_column(begun.column_names.index("sequence"), "sequence", new_keys["sequence"])
        parts = pa.concat_tables([parts, _parts(begun, begins=True).filter(pa.array(~_among(new_codes, gone)))])
    elsewhere = ~_among(gone, np.concatenate([codes[_CAME[kind]], new_codes]))
    return _grouped(parts), keys.take(np.flatnonzero(over)[elsewhere])


def drops_of(events: pa.Table) -> pa.Table:
    found = events.filter(pc.equal(events["kind_code"], KIND_CODES[DROPS]))
    return pa.table([found[name] for name in ("channel_key", "sequence", "ts", "seq")], schema=DROPPED)


def merged(parts: pa.Table, ends: pa.Table) -> pa.Table:
    """One part per key, without those that have ended."""
    if ends.num_rows and parts.num_rows:
        part_codes, end_codes = _codes(parts, ends)
        parts = parts.filter(pa.array(~_among(part_codes, end_codes)))
    return _grouped(parts)


def dropped(parts: pa.Table, drops: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The parts that stay, and those that were deleted with their channel: with the time and the seq of that event."""
    if not drops.num_rows or not parts.num_rows:
        return parts, parts.slice(0, 0)
    drops = drops.sort_by([("channel_key", "ascending"), ("sequence", "ascending"), ("seq", "ascending")])
    part_codes, drop_codes = _codes(parts, drops)
    order = np.argsort(drop_codes, kind="stable")
    at = np.searchsorted(drop_codes[order], part_codes, side="left")
    nearest = drops.take(pa.array(order[np.minimum(at, len(order) - 1)]))
    gone = pc.and_(pa.array(at < len(order)), pc.equal(nearest["channel_key"], parts["channel_key"]))
    lost = parts.filter(gone)
    nearest = nearest.filter(gone)
    for name, values in (("last_at", nearest["at"]), ("last_seq", nearest["seq"])):
        lost = lost.set_column(lost.column_names.index(name), name, values)
    kinds = pa.repeat(pa.scalar(DROPS), lost.num_rows)
    lost = lost.set_column(lost.column_names.index("last_kind"), "last_kind", kinds)
    return parts.filter(pc.invert(gone)), lost


def touched(keys: pa.Table, moved: pa.Table, drops: pa.Table) -> npt.NDArray[np.bool_]:
    """Which of the keys have changed, or were deleted with their channel."""
    key_codes, moved_codes = _codes(keys, moved)
    found = _among(key_codes, moved_codes)
    if drops.num_rows:
        found |= pc.is_in(keys["channel_key"], drops["channel_key"].combine_chunks()).to_numpy()
    return found


def open_rows(parts: pa.Table) -> pa.Table:
    """The rows of the table."""
    return _rows(parts, states_of(parts), pa.nulls(parts.num_rows, pa.string()))


def dropped_rows(parts: pa.Table) -> pa.Table:
    """The rows of the table, closed."""
    gone = pa.repeat(pa.scalar(STATES["completed"]), parts.num_rows)
    return _rows(parts, gone, pa.repeat(pa.scalar(DROPS), parts.num_rows))


def parts_of_rows(rows: pa.Table) -> pa.Table:
    """Rows of an earlier batch as parts of new ones."""
    return rows.select(PART.names).cast(PART)


def states_of(parts: pa.Table) -> pa.ChunkedArray:
    """As in the store: see STATES in capture/schema.py."""
    kind = parts["last_kind"]
    by_kind = pc.if_else(pc.is_in(kind, pa.array(["delivered", "renewed"])), "locked", "active")
    by_kind = pc.if_else(pc.is_in(kind, pa.array(["scheduled", "deferred"])), kind, by_kind)
    later = pc.and_(pc.is_in(kind, pa.array(["copied", "returned"])), pc.is_valid(parts["due_at"]))
    state = pc.if_else(later, "scheduled", by_kind)
    back = pc.and_(pc.equal(kind, "returned"), parts["was_deferred"])
    return pc.if_else(back, "deferred", state)


def _rows(parts: pa.Table, state: pa.Array, outcome: pa.Array) -> pa.Table:
    computed = {
        "state": state,
        "outcome": outcome,
        "signature": pa.nulls(parts.num_rows, pa.string()),
        "delivery_count": parts["delivery_count"].fill_null(0),
    }
    stored = MESSAGES.stored()
    return pa.table([computed[name] if name in computed else parts[name] for name in stored.names], schema=stored)


def _renamings(events: pa.Table, kind: npt.NDArray[np.uint8]) -> tuple[Numbers, pa.Table]:
    """The rows with an activation under another sequence, and the keys that begin with them."""
    rows = np.flatnonzero(kind == KIND_CODES[RENAMES])
    activated = events.select([*KEYS.names, "attrs"]).take(rows)
    new = _attribute(activated, "new_sequence")
    other = pc.and_(pc.is_valid(new), pc.not_equal(new, activated["sequence"])).fill_null(False)
    found = pa.table([activated["channel_key"], new], schema=KEYS).filter(other)
    return rows[other.to_numpy()], found


def _among(codes: Numbers, wanted: Numbers) -> npt.NDArray[np.bool_]:
    """Which of the codes are wanted. An array of flags is fastest, unless it becomes too large."""
    if not len(codes) or not len(wanted):
        return np.zeros(len(codes), np.bool_)
    top = max(int(codes.max()), int(wanted.max())) + 1
    if top > _FLAGS_PER_CODE * (len(codes) + len(wanted)):
        found: npt.NDArray[np.bool_] = pc.is_in(pa.array(codes), pa.array(wanted)).to_numpy(zero_copy_only=False)
        return found
    flags = np.zeros(top, np.bool_)
    flags[wanted] = True
    return cast("npt.NDArray[np.bool_]", flags[codes])


def _attribute(events: pa.Table, name: str) -> pa.ChunkedArray:
    """A number from attrs."""
    return cast(pa.ChunkedArray, pc.map_lookup(events["attrs"], query_key=name, occurrence="first").cast(pa.int64()))


def _parts(events: pa.Table, begins: bool = False) -> pa.Table:
    code = events["kind_code"]
    came = pa.repeat(pa.scalar(True), events.num_rows) if begins else pa.array(_CAME[code.to_numpy().view(np.uint8)])
    delivered = pc.equal(code, KIND_CODES["delivered"])
    due = pc.if_else(pc.is_in(code, _DUE_BY_DELAY), _attribute(events, "visible_us"), None)
    due = pc.if_else(pc.is_in(code, _DUE_BY_LOCK), _attribute(events, "until_us"), due)
    computed = {
        "enqueued_at": pc.if_else(came, events["ts"], None),
        "first_delivered_at": pc.if_else(delivered, events["ts"], None),
        "consumer": pc.if_else(delivered, events["consumer"].cast(pa.string()), None),
        "reason": pc.if_else(pc.equal(code, KIND_CODES["returned"]), events["reason"].cast(pa.string()), None),
        "due_at": due.cast(MOMENT),
        "last_at": events["ts"],
        "last_kind": kind_names(code),
        "last_seq": events["seq"],
        "was_deferred": pc.equal(code, KIND_CODES["deferred"]),
    }
    return pa.table({name: computed[name] if name in computed else events[name] for name in PART.names}).cast(PART)


def _grouped(parts: pa.Table) -> pa.Table:
    """One part per key, sorted by key."""
    if not parts.num_rows:
        return parts
    (codes,) = _codes(parts)
    order = np.lexsort((parts["last_seq"].to_numpy(), codes))
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    parts = parts.take(pa.array(order))
    if len(starts) == parts.num_rows:
        return parts
    last = np.append(starts[1:], parts.num_rows) - 1
    columns = {name: parts[name].take(pa.array(last)) for name in (*KEYS.names, *_OF_LAST)}
    columns.update({name: _known(parts[name], starts, first=True) for name in _FIRST})
    columns.update({name: _known(parts[name], starts, first=False) for name in _LAST})
    columns["was_deferred"] = pa.array(np.logical_or.reduceat(parts["was_deferred"].to_numpy(), starts))
    return pa.table([columns[name] for name in PART.names], schema=PART)


def _known(column: pa.ChunkedArray, starts: Numbers, first: bool) -> pa.ChunkedArray:
    """The first or last value of each group that is not null."""
    count = len(column)
    place = np.arange(count)
    known = pc.is_valid(column).to_numpy()
    if first:
        at = np.minimum.reduceat(np.where(known, place, count), starts)
        none = at == count
    else:
        at = np.maximum.reduceat(np.where(known, place, -1), starts)
        none = at < 0
    return column.take(pa.array(at, mask=none))


def _codes(*tables: pa.Table) -> list[Numbers]:
    """A number for each key, the same in all tables. Sorted by it is sorted by channel, in some order, and sequence."""
    sizes = np.cumsum([each.num_rows for each in tables])
    channels = np.concatenate([each["channel_key"].to_numpy() for each in tables])
    sequences = np.concatenate([each["sequence"].to_numpy() for each in tables])
    if not len(channels):
        return [channels for _ in tables]
    numbers = pa.array(channels).dictionary_encode()
    span = int(sequences.max()) - int(sequences.min()) + 1
    low = int(sequences.min())
    if span * len(numbers.dictionary) >= 1 << 62:  # The product would overflow: number the sequences densely.
        distinct, sequences = np.unique(sequences, return_inverse=True)
        span, low = len(distinct), 0
    codes = numbers.indices.to_numpy().astype(np.int64) * span + (sequences - low)
    return np.split(codes, sizes[:-1])
