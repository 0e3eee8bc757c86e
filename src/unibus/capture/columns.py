"""From changes to Arrow columns, many at a time: the same rows that `event_of` makes one by one.

    page of changes ──▶ by_type ──▶ one table for each hot kind ──┐
                                └─▶ event_of for the rare kinds ──┴─▶ sorted by seq ──▶ one table

Changes of one kind have the same fields, so a page is grouped by kind first. The kinds of nearly every message (`_HOT`)
become columns directly, with one comprehension for each field; the others are rare and go through `event_of`. A test
asserts that both ways give the same rows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from unibus.capture.schema import EVENTS, KIND_CODES, channel_key, table_of
from unibus.core.lifecycle.events import SCHEDULED, event_of, refusal_at
from unibus.core.lifecycle.state import changes
from unibus.core.lifecycle.state.changes import Change

Page = Sequence[tuple[int, Sequence[Change]]]
"""Groups of changes that follow each other: the seq of the first, and the changes."""

NamesOf = Callable[[Iterable[int]], dict[int, str]]
"""The names of entities by number, deleted ones included."""

_HOT: Final[dict[type, str]] = {
    changes.Sent: "sent",
    changes.Passed: "published",
    changes.Copied: "copied",
    changes.Delivered: "delivered",
    changes.Returned: "returned",
    changes.Completed: "completed",
}
_INT: Final = pa.int64()
_TEXT: Final = pa.string()


Found = tuple[list[int], list[Any]]
"""Changes of one type with their seqs."""


def by_type(page: Page) -> dict[type, Found]:
    """The changes of a page, grouped by type. The commits of a page are contiguous, so their seqs are one range."""
    if not page:
        return {}
    first = page[0][0]
    flat = list(chain.from_iterable([group for _, group in page]))
    places: defaultdict[type, list[int]] = defaultdict(list)
    for at, kind in enumerate(map(type, flat)):
        places[kind].append(at)
    return {kind: ([first + at for at in some], [flat[at] for at in some]) for kind, some in places.items()}


class EventColumns:
    """The columns of one source, which has one domain."""

    def __init__(self, domain: str) -> None:
        self._domain = domain

    def table(self, sorted_out: dict[type, Found], names_of: NamesOf) -> pa.Table:
        """All rows of a page, by seq."""
        entities = {change.entity for _, found in sorted_out.values() for change in found}
        entities.update([change.source_entity for change in sorted_out.get(changes.Copied, ((), ()))[1]])
        names = names_of(entities)
        tables: list[pa.Table] = []
        others: list[tuple[int, Change]] = []
        for kind, (seqs, found) in sorted_out.items():
            if kind is changes.Sent:
                tables += [self._hot(*each, names) for each in _split_sent(seqs, found)]
            elif kind in _HOT:
                tables.append(self._hot(_HOT[kind], seqs, found, names))
            else:
                others += zip(seqs, found, strict=True)
        if others:
            others.sort(key=itemgetter(0))  # They were collected kind by kind.
            tables.append(table_of([event_of(seq, change, self._domain, names) for seq, change in others]))
        return _in_order(tables)

    def _hot(self, kind: str, seqs: list[int], found: list[Any], names: dict[int, str]) -> pa.Table:
        return _hot_table(kind, seqs, found, self._domain, names)


def _in_order(tables: list[pa.Table]) -> pa.Table:
    """One table sorted by seq. Each part is sorted already, so a single part needs no sorting."""
    if not tables:
        return EVENTS.empty_table()
    whole = pa.concat_tables(tables)
    return whole if len(tables) == 1 else whole.take(pc.sort_indices(whole["seq"]))


def _split_sent(seqs: list[int], found: list[Any]) -> list[tuple[str, list[int], list[Any]]]:
    """Split sends into immediate and scheduled ones, which are two kinds of event."""
    later = [bool(change.visible_ns) for change in found]
    if not any(later):
        return [("sent", seqs, found)]
    now = [not each for each in later]
    parts = (("sent", now), (SCHEDULED, later))
    return [
        (kind, list(compress(seqs, chosen)), list(compress(found, chosen))) for kind, chosen in parts if any(chosen)
    ]


def _hot_table(kind: str, seqs: list[int], found: list[Any], domain: str, names: dict[int, str]) -> pa.Table:
    count = len(seqs)
    refs = [change.who for change in found]
    channel, keys = _channels([change.entity for change in found], domain, names)
    columns: dict[str, pa.Array] = {
        "seq": pa.array(seqs, _INT),
        "ts": _micros(pa.array([change.at_ns for change in found], _INT)).cast(EVENTS.field("ts").type),
        "domain": pa.repeat(domain, count),
        "channel": channel,
        "channel_key": keys,
        "kind": pa.repeat(kind, count),
        "kind_code": pa.repeat(pa.scalar(KIND_CODES[kind], pa.int8()), count),
        "sequence": pa.array([change.sequence for change in found], _INT),
        "message_id": pa.array([ref.message_id for ref in refs], _TEXT),
        "correlation_id": pa.array([ref.correlation_id for ref in refs], _TEXT),
        "trace_id": pa.array([ref.trace_id for ref in refs], _TEXT),
        "session_id": pa.array([ref.session_id for ref in refs], _TEXT),
        "size": pa.array([ref.size for ref in refs], _INT),
    }
    _MORE[kind](columns, seqs, found, names)
    return pa.table(
        [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in EVENTS],
        schema=EVENTS,
    )


def _channels(entities: list[int], domain: str, names: dict[int, str]) -> tuple[pa.Array, pa.Array]:
    # Names and keys are computed once for each entity of the page, not for each row.
    coded = pa.array(entities, _INT).dictionary_encode()
    known = [name_of(number, names) for number in coded.dictionary.to_pylist()]
    keys = pa.array([channel_key(domain, name) for name in known], _INT)
    return pa.array(known, _TEXT).take(coded.indices), keys.take(coded.indices)


def name_of(entity: int, names: dict[int, str]) -> str:
    return names.get(entity, f"#{entity}") if entity else ""


# The columns that only some kinds have, with the same values as in event_of


Columned = dict[str, pa.Array]
More = Callable[[Columned, list[int], list[Any], dict[int, str]], None]


def _sent(columns: Columned, seqs: list[int], found: list[Any], names: dict[int, str]) -> None:
    columns["attrs"] = _maps(
        len(found),
        priority=_numbers([change.priority for change in found]),
        dedup_key=pa.array([change.dedup_key for change in found], _TEXT),
        visible_us=_instants([change.visible_ns for change in found]),
        refusal=_refusals(found, names),
    )


def _passed(columns: Columned, seqs: list[int], found: list[Any], names: dict[int, str]) -> None:
    columns["attrs"] = _maps(
        len(found),
        priority=_numbers([change.priority for change in found]),
        copies=_numbers([change.copies for change in found]),
        dedup_key=pa.array([change.dedup_key for change in found], _TEXT),
    )


def _copied(columns: Columned, seqs: list[int], found: list[Any], names: dict[int, str]) -> None:
    sources = [name_of(change.source_entity, names) or None for change in found]
    carriers = [
        None if change.source_entity else str(seq - change.back) for seq, change in zip(seqs, found, strict=True)
    ]
    columns["attrs"] = _maps(
        len(found),
        priority=_numbers([change.priority for change in found]),
        source_sequence=_numbers([change.source_sequence for change in found]),
        dedup_key=pa.array([change.dedup_key for change in found], _TEXT),
        visible_us=_instants([change.visible_ns for change in found]),
        source=pa.array(sources, _TEXT),
        source_seq=pa.array(carriers, _TEXT),
        refusal=_refusals(found, names),
    )


def _refusals(found: list[Any], names: dict[int, str]) -> pa.Array:
    texts = [
        None if change.overlay is None else refusal_at(name_of(change.entity, names), change.overlay) or None
        for change in found
    ]
    return pa.array(texts, _TEXT)


def _delivered(columns: Columned, seqs: list[int], found: list[Any], names: dict[int, str]) -> None:
    columns["delivery_count"] = pa.array([change.delivery_count for change in found], pa.int32())
    columns["consumer"] = pa.array([change.consumer or None for change in found], _TEXT)
    columns["attrs"] = _maps(len(found), until_us=_instants([change.until_ns for change in found]))


def _returned(columns: Columned, seqs: list[int], found: list[Any], names: dict[int, str]) -> None:
    columns["delivery_count"] = pa.array([change.delivery_count for change in found], pa.int32())
    columns["reason"] = pa.array([change.reason for change in found], _TEXT)
    columns["attrs"] = _maps(len(found), visible_us=_instants([change.visible_ns for change in found]))


def _completed(columns: Columned, seqs: list[int], found: list[Any], names: dict[int, str]) -> None:
    columns["delivery_count"] = pa.array([change.delivery_count for change in found], pa.int32())
    columns["enqueued_us"] = _moments([change.enqueued_ns for change in found])
    columns["first_delivered_us"] = _moments([change.first_delivered_ns for change in found])
    columns["consumer"] = pa.array([change.consumer or None for change in found], _TEXT)


_MORE: Final[dict[str, More]] = {
    "sent": _sent,
    SCHEDULED: _sent,
    "published": _passed,
    "copied": _copied,
    "delivered": _delivered,
    "returned": _returned,
    "completed": _completed,
}


# Values


def _micros(nanoseconds: pa.Array) -> pa.Array:
    return pc.divide(nanoseconds, 1_000)


def _moments(nanoseconds: list[int]) -> pa.Array:
    """Microseconds; null for 0, which means that there is no instant."""
    whole = pa.array(nanoseconds, _INT)
    return pc.if_else(pc.equal(whole, 0), pa.scalar(None, _INT), _micros(whole))


def _instants(nanoseconds: list[int]) -> pa.Array:
    """The same as text. Most pages have no instant at all, so that case skips the conversion."""
    if not any(nanoseconds):
        return pa.nulls(len(nanoseconds), _TEXT)
    return _moments(nanoseconds).cast(_TEXT)


def _numbers(values: list[int]) -> pa.Array:
    """Numbers as text; null for 0."""
    if not any(values):
        return pa.nulls(len(values), _TEXT)
    whole = pa.array(values, _INT)
    return pc.if_else(pc.equal(whole, 0), pa.scalar(None, _INT), whole).cast(_TEXT)


def _maps(count: int, **columns: pa.Array) -> pa.Array:
    """One map for each row, with the values that are not null; null for a row without any."""
    used = {name: values for name, values in columns.items() if values.null_count < count}
    if not used:
        return pa.nulls(count, EVENTS.field("attrs").type)
    # A map column is offsets into flat lists of names and values: both are built for the whole page at once.
    counts = _sum([pc.cast(pc.is_valid(values), pa.int32()) for values in used.values()])
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    names, values = _interleaved(count, used)
    return pa.MapArray.from_arrays(offsets, names, values, mask=pc.equal(counts, 0))


def _sum(arrays: list[pa.Array]) -> pa.Array:
    total = arrays[0]
    for each in arrays[1:]:
        total = pc.add(total, each)
    return total


def _interleaved(count: int, columns: dict[str, pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Names and values, row after row, without nulls."""
    if len(columns) == 1:
        ((name, values),) = columns.items()
        kept = values.drop_null() if values.null_count else values
        return pa.repeat(name, len(kept)), kept
    stacked = pa.concat_arrays(list(columns.values()))
    names = pa.concat_arrays([pa.repeat(name, count) for name in columns])
    order = pa.array([row + at * count for row in range(count) for at in range(len(columns))], pa.int32())
    mixed, named = stacked.take(order), names.take(order)
    is_set = pc.is_valid(mixed)
    return named.filter(is_set), mixed.filter(is_set)
