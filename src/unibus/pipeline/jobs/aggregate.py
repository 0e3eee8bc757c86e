"""Combines rows with the same key: of a task, of a batch, of a table."""

from collections.abc import Mapping, Sequence

import pyarrow as pa


def added_up(rows: pa.Table, adds: Mapping[str, str]) -> pa.Table:
    """`adds` says how, by column: sum, min or max. All other columns are the key; the order of columns stays."""
    keys = [name for name in rows.column_names if name not in adds]
    grouped = rows.group_by(keys, use_threads=False).aggregate(list(adds.items()))
    grouped = grouped.rename_columns([*keys, *adds] if grouped.column_names[0] in keys else [*adds, *keys])
    return grouped.select(rows.column_names)


def all_added_up(parts: Sequence[pa.Table], adds: Mapping[str, str]) -> pa.Table:
    """Of at least one part. A single part has unique keys already."""
    return parts[0] if len(parts) == 1 else added_up(pa.concat_tables(parts).combine_chunks(), adds)
