"""Channels are grouped by a number, which is faster than by name. The names are joined at the very end."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from unibus.capture.schema import KIND_CODES

NAMES: Final = pa.schema([("channel_key", pa.int64()), ("domain", pa.string()), ("channel", pa.string())])
_UNKNOWN: Final = "unknown"
_BY_CODE: Final = {code: name for name, code in KIND_CODES.items()}
KIND_NAMES: Final = pa.array([_BY_CODE.get(code, _UNKNOWN) for code in range(128)])
"""By kind_code; "unknown" for a code that this version does not know."""


def names_of(events: pa.Table) -> pa.Table:
    """One row per channel of the events."""
    rows = pa.table({"channel_key": events["channel_key"], "at": np.arange(events.num_rows)})
    first = rows.group_by("channel_key", use_threads=False).aggregate([("at", "min")])["at_min"]
    return events.select(NAMES.names).take(first).cast(NAMES)


def distinct(names: pa.Table) -> pa.Table:
    return names.group_by(NAMES.names, use_threads=False).aggregate([]).select(NAMES.names)


def with_names(rows: pa.Table, names: pa.Table) -> pa.Table:
    """The rows with the columns domain and channel."""
    at = pc.index_in(rows["channel_key"], value_set=names["channel_key"].combine_chunks()).combine_chunks()
    for name in ("domain", "channel"):
        rows = rows.append_column(name, pa.DictionaryArray.from_arrays(at, names[name].combine_chunks()))
    return rows


def kind_names(codes: pa.ChunkedArray) -> pa.ChunkedArray:
    found = [pa.DictionaryArray.from_arrays(chunk, KIND_NAMES) for chunk in codes.chunks]
    return pa.chunked_array(found, type=pa.dictionary(pa.int8(), pa.string()))


def codes_of(kinds: frozenset[str]) -> pa.Array:
    return pa.array(sorted(KIND_CODES[kind] for kind in kinds), pa.int8())


def flags_of(kinds: frozenset[str]) -> npt.NDArray[np.bool_]:
    """An array of flags by kind_code (as an unsigned number): whether it is one of the kinds."""
    flags = np.zeros(256, np.bool_)
    flags[[KIND_CODES[kind] for kind in kinds]] = True
    return flags
