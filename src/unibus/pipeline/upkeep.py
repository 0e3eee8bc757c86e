"""Keeps a lake small: compaction, retention, vacuum.

compaction  merges many small files into few, and in additive tables the rows of one key into one row; the result
            of every query stays the same. Moves files of an earlier version into the folders of their partitions
retention   removes rows older than a given age; open messages stay
vacuum      deletes files that no table names any more, some hours later: until then a reader may have them open
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from unibus.errors import LakeIncomplete, UsageError
from unibus.pipeline.jobs.aggregate import added_up
from unibus.pipeline.lake import Lake
from unibus.pipeline.plan import has_begun, load_plan
from unibus.pipeline.storage.delta import DeltaFolder
from unibus.pipeline.storage.files import File
from unibus.pipeline.storage.tables import BATCHES, TABLES
from unibus.pipeline.swap import exchange

FILE_ROWS: Final = 1_000_000
"""A file with so many rows is not merged any more."""
MANY_FILES: Final = 48
"""With so many small files in a table, a run merges them by itself."""
VACUUM_HOURS: Final = 24
_FEW_ROWS: Final = 20_000
_LEFT_BEHIND: Final = (".staging", ".rebuild")
"""Folders of an interrupted batch or rebuild. The process that holds the lock knows that no other one uses them."""


@contextmanager
def _upkeep(lake: Lake) -> Iterator[None]:
    """Only for a complete lake: finishes an interrupted exchange, and rejects a lake with an interrupted batch."""
    with lake.lock():
        exchange(lake)
        plan = load_plan(lake.path)
        if plan is not None and has_begun(lake, plan):
            raise LakeIncomplete(
                f"batch {plan.number} of {lake.path} was interrupted", "`unibus pipeline run --once` finishes it"
            )
        with lake.upkeep():
            yield


def compact(lake: Lake, tables: Sequence[str] | None = None) -> dict[str, tuple[int, int]]:
    """By table: the number of files before and after."""
    found = {}
    with _upkeep(lake):
        for name in tables or TABLES:
            folder = lake.folder(name)
            before = len(folder.files())
            _put_in_place(folder)
            for run in _runs(_finished(folder)):
                _put_together(folder, run)
            found[name] = (before, len(folder.files()))
    return found


def tidy(lake: Lake) -> None:
    """Merge the small files of tables that have many of them; only files of similar size, so a row is seldom moved."""
    with lake.lock():
        found = {name: _smallest(_finished(lake.folder(name))) for name in TABLES}
        many = {name: small for name, small in found.items() if len(small) >= MANY_FILES}
        if many:
            with lake.upkeep():
                for name, small in many.items():
                    _put_together(lake.folder(name), small)


def _finished(folder: DeltaFolder) -> list[File]:
    """Not the files with open messages: the batches merge those."""
    return [each for each in folder.files() if not each.open]


def _runs(files: Sequence[File]) -> list[list[File]]:
    """Groups of files that become one file each, the oldest first (their names begin with the batch)."""
    runs: list[list[File]] = [[]]
    for file in sorted(files, key=lambda each: each.name):
        if file.rows < FILE_ROWS:
            if sum(each.rows for each in runs[-1]) + file.rows > FILE_ROWS:
                runs.append([])
            runs[-1].append(file)
    return [run for run in runs if len(run) > 1]


def _smallest(files: Sequence[File]) -> list[File]:
    taken: list[File] = []
    rows = 0
    for file in sorted(files, key=lambda each: each.rows):
        if file.rows > max(rows, _FEW_ROWS) or rows + file.rows > FILE_ROWS:
            break
        taken.append(file)
        rows += file.rows
    return taken


def _put_in_place(folder: DeltaFolder) -> None:
    """A lake of an earlier version has files that only readers of the log can tell the partition of."""
    misplaced = folder.misplaced()
    if misplaced:
        folder.commit([folder.moved(each) for each in misplaced], misplaced, changed=False)


def _put_together(folder: DeltaFolder, files: Sequence[File]) -> None:
    rows = folder.read(files).combine_chunks()
    if folder.table.adds:
        rows = added_up(rows, folder.table.adds)
    elif folder.table.moment:
        rows = rows.sort_by(folder.table.moment)
    flag = False if folder.table.partition else None
    folder.commit([folder.write(rows, 0, open_=flag)], files, changed=False)


def retain(lake: Lake, keep_us: Mapping[str, int], now_us: int) -> dict[str, int]:
    """Remove rows older than `keep_us`. By table: how many."""
    unknown = [name for name in keep_us if name not in TABLES or not TABLES[name].moment]
    if unknown:
        known = ", ".join(name for name, table in TABLES.items() if table.moment)
        raise UsageError(f"{unknown[0]!r} is no table with rows that can expire", f"use one of {known}")
    with _upkeep(lake):
        return {name: _forget(lake.folder(name), now_us - kept) for name, kept in keep_us.items()}


def _forget(folder: DeltaFolder, before_us: int) -> int:
    moment = folder.table.moment
    old = [each for each in _finished(folder) if each.low.get(moment, before_us) < before_us]
    if folder.table is BATCHES:
        newest = max((each.high.get("number", 0) for each in folder.files()), default=0)
        old = [each for each in old if each.high.get("number", 0) < newest]  # It holds the position in each source.
    flag = False if folder.table.partition else None
    adds, gone = [], 0
    for file in old:
        rows = folder.read([file])
        kept = rows.filter(pc.greater_equal(rows[moment], pa.scalar(before_us, rows.schema.field(moment).type)))
        gone += rows.num_rows - kept.num_rows
        if kept.num_rows:
            adds.append(folder.write(kept, 0, open_=flag))
    if old:
        folder.commit(adds, old)
    return gone


def vacuum(lake: Lake, hours: int = VACUUM_HOURS) -> list[str]:
    """Delete files that no table has named for so many hours. A query that runs for longer fails."""
    with _upkeep(lake):
        gone = [path for name in TABLES for path in lake.folder(name).vacuum(hours)]
        for path in (os.path.join(lake.path, name) for name in _LEFT_BEHIND):
            if os.path.isdir(path):
                shutil.rmtree(path)
                gone.append(path)
        return gone
