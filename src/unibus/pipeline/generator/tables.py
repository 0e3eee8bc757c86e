"""Converts rows of numbers to Arrow tables with the columns of a capture, without a loop over rows in Python."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unibus.capture import schema
from unibus.capture.schema import KIND_CODES, channel_key
from unibus.core.envelope.priority import Priority
from unibus.core.lifecycle.state.entity import KIND_NAMES
from unibus.pipeline.generator.rows import ATTR, Row
from unibus.pipeline.generator.sending import HOPS_MAX
from unibus.pipeline.generator.world import REASONS, SIGNATURES, Domain, Flags, Ints

CURSOR: Final = "capture"
BODY_KINDS: Final = tuple(KIND_CODES[kind] for kind in ("sent", "scheduled", "published"))
_WITH_PRIORITY: Final = (*BODY_KINDS, KIND_CODES["copied"])
_NUMBERS: Final = ("until_us", "visible_us", "copies", "source_seq", "new_sequence", "position")

_HEX4: Final = np.frombuffer(b"".join(b"%04x" % number for number in range(1 << 16)), np.uint32)
_KIND_NAMES: Final = pa.array([""] + [name for name, _code in sorted(KIND_CODES.items(), key=lambda each: each[1])])


class Tables:
    """Creates the tables of one domain. The ids depend on `seed`."""

    def __init__(self, domain: Domain, seed: int) -> None:
        self._domain = domain
        self._seed = seed
        self._names = pa.array([*domain.names, ""])  # The last one: about no entity at all.
        self._keys = np.array([channel_key(domain.name, name) for name in [*domain.names, ""]])
        self._kinds = pa.array([KIND_NAMES[kind] for kind in domain.kinds])
        self._bodies = _bodies(seed)

    def events(self, seq: Ints, rows: Row) -> pa.Table:
        message = rows["msg"] >= 0
        flow = rows["msg"][message] // HOPS_MAX
        drawn = _mixed(flow.astype(np.uint64) + np.uint64(self._seed << 40))
        correlated, traced = drawn % 10 < 7, drawn % 16 < 13
        columns = {
            "seq": pa.array(seq),
            "ts": pa.array(rows["ts"]).cast(pa.timestamp("us", tz="UTC")),
            "domain": pa.repeat(self._domain.name, len(seq)),
            "channel": self._names.take(pa.array(rows["chan"])),
            "channel_key": pa.array(self._keys[rows["chan"]]),
            "kind": _KIND_NAMES.take(pa.array(rows["kind"])),
            "kind_code": pa.array(rows["kind"]),
            "sequence": pa.array(rows["place"]),
            "message_id": self._ids(rows["msg"], message),
            "correlation_id": _hex(_among(message, correlated), drawn[correlated]),
            "trace_id": _hex(_among(message, traced), drawn[traced], _mixed(drawn[traced])),
            "session_id": _hex(rows["session"] > 0, rows["session"][rows["session"] > 0].astype(np.uint64)),
            "delivery_count": _null_where(rows["count"], rows["count"] < 0),
            "size": _null_where(rows["size"].astype(np.int64), rows["size"] < 0),
            "enqueued_us": _null_where(rows["enqueued"], rows["enqueued"] == 0),
            "first_delivered_us": _null_where(rows["first"], rows["first"] == 0),
            "reason": pa.array(REASONS).take(pa.array(rows["reason"])),
            "signature": pa.array(SIGNATURES).take(pa.array(rows["signature"])),
            "consumer": pa.array(self._domain.consumers).take(pa.array(rows["consumer"])),
            "attrs": self._attrs(seq, rows),
        }
        return pa.table([columns[field.name] for field in schema.EVENTS], schema=schema.EVENTS)

    def _ids(self, numbers: NDArray[np.signedinteger], there: Flags) -> pa.Array:
        """Like those of an IdGenerator: a prefix, and an increasing number."""
        prefix = _mixed(np.array([self._seed], np.uint64)) >> np.uint64(16)
        counted = numbers[there].astype(np.uint64)
        return _hex(there, np.broadcast_to(prefix, counted.shape), counted, short=True)

    def _attrs(self, seq: Ints, rows: Row) -> pa.Array:
        """The entries of all rows by key, then sorted by row."""
        attr, value = rows["attr"], rows["value"]
        entries = _Entries()
        prior = np.isin(rows["kind"], _WITH_PRIORITY)
        entries.add("priority", prior, _PRIORITIES.take(pa.array(_priority_of(rows["msg"][prior]))))
        for name in _NUMBERS:
            has_attr = attr == ATTR[name]
            if name in ("source_seq", "position"):  # So many rows before this one.
                number = seq[has_attr] - value[has_attr]
            else:
                number = value[has_attr]
            if name == "copies":
                has_attr, number = _without_zero(has_attr, number)
            entries.add(name, has_attr, pa.array(number).cast(pa.string()))
        for name in ("dedup_key", "key"):
            has_attr = attr == ATTR[name]
            entries.add(name, has_attr, self._ids(value[has_attr], np.ones(int(has_attr.sum()), np.bool_)))
        self._places(rows, entries)
        return entries.array(len(seq))

    def _places(self, rows: Row, entries: "_Entries") -> None:
        has_attr = rows["attr"] == ATTR["source"]
        entries.add("source", has_attr, self._names.take(pa.array(rows["other_chan"][has_attr])))
        entries.add("source_sequence", has_attr, pa.array(rows["other_place"][has_attr]).cast(pa.string()))
        has_attr = rows["attr"] == ATTR["moved"]
        entries.add("target", has_attr, self._names.take(pa.array(rows["other_chan"][has_attr])))
        entries.add("action", has_attr, pa.repeat("retry", int(has_attr.sum())))
        has_attr = rows["attr"] == ATTR["declared"]
        entries.add("name", has_attr, self._names.take(pa.array(rows["chan"][has_attr])))
        entries.add("kind", has_attr, self._kinds.take(pa.array(rows["chan"][has_attr])))
        has_attr = rows["attr"] == ATTR["position"]
        entries.add("name", has_attr, pa.repeat(CURSOR, int(has_attr.sum())))

    def bodies(self, events: pa.Table) -> pa.Table:
        """The bodies of the events with data."""
        mask = pc.is_in(events["kind_code"], value_set=pa.array(BODY_KINDS, pa.int8()))
        brought = events.filter(mask).select(["seq", "domain", "channel", "channel_key", "sequence", "message_id"])
        count = brought.num_rows
        pick = _mixed(brought["seq"].to_numpy().astype(np.uint64)) % np.uint64(len(self._bodies))
        offsets = pa.array(np.arange(count + 1, dtype=np.int32))
        tenants = pa.array([f"tenant-{number}" for number in range(20)]).take(pa.array(pick % np.uint64(20)))
        headers = pa.MapArray.from_arrays(offsets, pa.repeat("tenant", count), tenants)
        more = {
            "content_type": pa.repeat("application/json", count),
            "headers": headers,
            "body": self._bodies.take(pa.array(pick)),
            "redacted": pa.repeat(False, count),
        }
        for name, column in more.items():
            brought = brought.append_column(name, column)
        return brought.cast(schema.BODIES)


class _Entries:
    """Entries of a map column, collected by key."""

    def __init__(self) -> None:
        self._rows: list[Ints] = []
        self._keys: list[str] = []
        self._values: list[pa.Array] = []

    def add(self, key: str, has_attr: Flags, values: pa.Array) -> None:
        if len(values):
            self._rows.append(np.flatnonzero(has_attr))
            self._keys.append(key)
            self._values.append(values)

    def array(self, count: int) -> pa.Array:
        """One map for each of `count` rows; null for a row without entries."""
        if not self._rows:
            return pa.nulls(count, schema.EVENTS.field("attrs").type)
        rows = np.concatenate(self._rows)
        order = np.argsort(rows, kind="stable")
        number = np.repeat(np.arange(len(self._keys)), [len(each) for each in self._rows])
        keys = pa.array(self._keys).take(pa.array(number[order]))
        values = pa.concat_arrays(self._values).take(pa.array(order))
        entries = np.bincount(rows, minlength=count)
        offsets = np.concatenate(([0], np.cumsum(entries))).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets), keys, values, mask=pa.array(entries == 0))


_PRIORITIES: Final = pa.array([str(level) for level in (Priority.NORMAL, Priority.HIGH, Priority.LOW)])


def _priority_of(numbers: NDArray[np.signedinteger]) -> NDArray[np.int64]:
    return np.select([numbers % 29 == 0, numbers % 31 == 0], [1, 2], 0)


def _without_zero(has_attr: Flags, number: NDArray[np.signedinteger]) -> tuple[Flags, NDArray[np.signedinteger]]:
    """Without the entries that are 0, which history leaves out."""
    kept = has_attr.copy()
    kept[has_attr] = number != 0
    return kept, number[number != 0]


def _null_where(values: NDArray[np.signedinteger], missing: Flags) -> pa.Array:
    return pa.array(values, mask=missing)


def _among(outer: Flags, inner: Flags) -> Flags:
    """`inner` has a flag for each row that `outer` selects."""
    both = outer.copy()
    both[outer] = inner
    return both


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Pseudo-random numbers that depend only on the input (splitmix64)."""
    z = numbers + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _hex(there: Flags, *numbers: NDArray[np.uint64], short: bool = False) -> pa.Array:
    """A text of 16 hexadecimal digits for each number; null for none. `short`: 12 digits."""
    count = int(there.sum())
    digits = np.empty((count, 4 * len(numbers)), np.uint32)
    for place, number in enumerate(numbers):
        for part in range(4):
            digits[:, 4 * place + part] = _HEX4[(number >> np.uint64(48 - 16 * part)) & np.uint64(0xFFFF)]
    if short:
        digits = np.ascontiguousarray(digits[:, [1, 2, 3, 5, 6, 7]])
    width = 4 * digits.shape[1]
    offsets = np.concatenate(([0], np.cumsum(there) * width)).astype(np.int32)
    valid = pa.array(there).buffers()[1] if count < len(there) else None
    return pa.Array.from_buffers(pa.string(), len(there), [valid, pa.py_buffer(offsets), pa.py_buffer(digits)])


def _bodies(seed: int) -> pa.Array:
    chance = np.random.default_rng([seed, 13])
    made = []
    for number in range(256):
        note = "".join(chr(letter) for letter in chance.integers(97, 123, int(chance.lognormal(5.3, 0.8))))
        made.append(f'{{"order": {number}, "amount": {number * 7 % 1000 / 10}, "note": "{note}"}}'.encode())
    return pa.array(made, pa.binary())
