"""The Parquet files of tables, without Delta: executors write them too, and need only Arrow."""

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from unibus.pipeline.storage.tables import LakeTable
from unibus.stores.files.disk import RealFiles
from unibus.stores.files.private import make_file, make_folder

START: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND: Final = datetime.timedelta(microseconds=1)
GROUP_ROWS: Final = 250_000
_LEVEL: Final = 1
_FAR: Final = 1 << 63


@dataclass(frozen=True)
class File:
    """A file of a table. `path` is relative to the folder of the table, with slashes as in the log of Delta."""

    path: str
    size: int
    rows: int
    open: bool | None = None
    """The value of the partition; None for a table without partitions."""
    low: dict[str, int] = field(default_factory=dict)
    high: dict[str, int] = field(default_factory=dict)
    """The smallest and largest values by column, for numbers and timestamps (in microseconds)."""

    @property
    def name(self) -> str:
        """Without the folder of its partition."""
        return self.path.rpartition("/")[2]


def path_of(name: str, table: LakeTable, open_: bool | None) -> str:
    """The path of a file in its table. Delta's log has the value of the partition, but some readers, such as Polars,
    read it from a path in the style of Hive."""
    return f"{table.partition}={partition_value(open_)}/{name}" if table.partition else name


def partition_value(open_: bool | None) -> str:
    return "true" if open_ else "false"


def write_file(folder: str, name: str, rows: pa.Table, table: LakeTable, open_: bool | None = None) -> File:
    """May run on an executor: it commits nothing. The data is synced, its entry in the folder is not."""
    place = path_of(name, table, open_)
    path = os.path.join(folder, place)
    make_folder(os.path.dirname(path))
    make_file(path)
    written: list[pq.FileMetaData] = []
    pq.write_table(
        rows.select(table.stored().names),
        path,
        compression="zstd",
        compression_level=_LEVEL,
        row_group_size=GROUP_ROWS,
        use_dictionary=list(table.few),
        store_schema=False,
        metadata_collector=written,
    )
    sync(path)
    low, high = _bounds(written[0])
    return File(place, os.path.getsize(path), rows.num_rows, open_, low, high)


def sync(path: str) -> None:
    """Sync the data of a file. `sync_folder` syncs its name."""
    files = RealFiles()
    handle = files.open(path)
    try:
        files.sync(handle)
    finally:
        files.close(handle)


def sync_folder(path: str) -> None:
    """Sync the entries of a folder."""
    RealFiles().sync_folder(path)


def _bounds(footer: pq.FileMetaData) -> tuple[dict[str, int], dict[str, int]]:
    """The smallest and largest numbers and timestamps of a file, so that readers can skip files."""
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    for group in range(footer.num_row_groups):
        for at in range(footer.num_columns):
            column = footer.row_group(group).column(at)
            name, known = column.path_in_schema, column.statistics
            if column.physical_type == "INT64" and known is not None and known.has_min_max and "." not in name:
                low[name] = min(low.get(name, _FAR), number(known.min))
                high[name] = max(high.get(name, -_FAR), number(known.max))
    return low, high


def number(value: Any) -> int:
    """A timestamp in microseconds; a number as it is."""
    return (value - START) // MICROSECOND if isinstance(value, datetime.datetime) else int(value)


def read_file(path: str, wanted: Sequence[pa.Field]) -> pa.Table:
    with pq.ParquetFile(path, memory_map=True) as file:
        there = set(file.schema_arrow.names)
        rows = file.read([each.name for each in wanted if each.name in there], use_threads=False)
    columns = [
        rows[each.name].cast(each.type) if each.name in there else pa.nulls(rows.num_rows, each.type) for each in wanted
    ]
    return pa.table(columns, schema=pa.schema(wanted))
