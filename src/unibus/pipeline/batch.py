"""The driver's part of a batch: combine the results of the tasks, and commit each table once.

A table that already has the batch is skipped. The tables may be committed in any order, except that `batches` is the
last, and is written only after the others are synced: a power cut must not leave a batch that looks complete.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unibus.pipeline.jobs.aggregate import all_added_up
from unibus.pipeline.jobs.channel_minutes import minute_rows
from unibus.pipeline.jobs.failures import failure_rows
from unibus.pipeline.jobs.latency import latency_rows
from unibus.pipeline.jobs.names import NAMES, distinct
from unibus.pipeline.jobs.open_messages import KEYS, dropped, dropped_rows, merged, open_rows, parts_of_rows, touched
from unibus.pipeline.jobs.task import TaskResult, staged
from unibus.pipeline.lake import Lake
from unibus.pipeline.plan import BatchPlan
from unibus.pipeline.storage.delta import DeltaFolder
from unibus.pipeline.storage.files import File
from unibus.pipeline.storage.tables import (
    BATCHES,
    CHANNEL_MINUTE,
    CHANNELS,
    FAILURES,
    LATENCY_HIST,
    MESSAGES,
    QUARANTINE,
    TABLES,
    TRACES,
    LakeTable,
)

OPEN_ROWS: Final = 100_000
"""Of open messages in one file: the rows that are rewritten when one of them changes."""
_SMALL_ROWS: Final = OPEN_ROWS // 4
_SMALL_FILES: Final = 8
"""From so many files with few open messages on, they are merged."""

Step = Callable[[str], None]
_FINISH: Final[tuple[tuple[LakeTable, Callable[[pa.Table, pa.Table], pa.Table]], ...]] = (
    (CHANNEL_MINUTE, minute_rows),
    (LATENCY_HIST, latency_rows),
    (FAILURES, failure_rows),
)


class Batch:
    def __init__(
        self, lake: Lake, plan: BatchPlan, answers: Sequence[TaskResult], wanted: Sequence[str], step: Step
    ) -> None:
        self._lake = lake
        self._plan = plan
        self._answers = [each for each in answers if each.events]
        self._wanted = frozenset(wanted)
        self._step = step
        self._names = distinct(self._parts("names")) if self._answers else NAMES.empty_table()

    def commit(self) -> None:
        """Every table but `batches`."""
        for table, commit in (
            (MESSAGES, self._messages),
            *((table, self._additive(table, rows_of)) for table, rows_of in _FINISH),
            (TRACES, self._traces),
            (CHANNELS, self._channels),
            (QUARANTINE, self._quarantine),
        ):
            if table.name in self._wanted:
                commit(self._lake.folder(table.name))
                self._step(table.name)

    def _parts(self, name: str) -> pa.Table:
        return pa.concat_tables([staged(each.staged, name) for each in self._answers])

    def _messages(self, folder: DeltaFolder) -> None:
        if not self._answers:
            return
        ends, drops, fresh = self._parts("ends"), self._parts("drops"), self._parts("opened")
        rewritten = _rewritten(folder, [each for each in folder.files() if each.open], fresh, ends, drops)
        earlier = parts_of_rows(folder.read(rewritten))
        still_open, lost = dropped(merged(pa.concat_tables([earlier, fresh]), ends), drops)
        number = self._plan.number
        adds = [file for each in self._answers for file in each.closed]
        rows = open_rows(still_open)
        for at in range(0, rows.num_rows, OPEN_ROWS):
            adds.append(folder.write(rows.slice(at, OPEN_ROWS), number, open_=True))
        if lost.num_rows:
            adds.append(folder.write(dropped_rows(lost), number, open_=False))
        _commit(folder, number, adds, rewritten)

    def _traces(self, folder: DeltaFolder) -> None:
        _commit(folder, self._plan.number, [file for each in self._answers for file in each.traces])

    def _additive(
        self, table: LakeTable, rows_of: Callable[[pa.Table, pa.Table], pa.Table]
    ) -> Callable[[DeltaFolder], None]:
        def commit(folder: DeltaFolder) -> None:
            if self._answers:
                parts = [staged(each.staged, table.name) for each in self._answers]
                self._append(folder, rows_of(all_added_up(parts, table.adds), self._names))

        return commit

    def _channels(self, folder: DeltaFolder) -> None:
        known = folder.read(folder.files(), ("channel_key",))["channel_key"]
        fresh = self._names.filter(pc.invert(pc.is_in(self._names["channel_key"], value_set=known)))
        number = pa.repeat(self._plan.number, fresh.num_rows)
        self._append(folder, fresh.append_column("first_batch", number).select(CHANNELS.schema.names))

    def _quarantine(self, folder: DeltaFolder) -> None:
        at = {"at": self._plan.at_us, "batch": self._plan.number}
        rows = [{**{name: getattr(each, name) for name in each.__struct_fields__}, **at} for each in self._plan.unread]
        self._append(folder, pa.Table.from_pylist(rows, schema=QUARANTINE.schema))

    def _append(self, folder: DeltaFolder, rows: pa.Table) -> None:
        number = self._plan.number
        _commit(folder, number, [folder.write(rows, number)] if rows.num_rows else [])

    def finish(self, seconds: float) -> tuple[int, int]:
        """Write the row in `batches`, which makes the batch complete. Returns how many events and closed messages."""
        number = self._plan.number
        prefix = f"b{number:08}-"
        files = self._lake.folder(MESSAGES.name).files()
        closed = sum(each.rows for each in files if not each.open and each.name.startswith(prefix))
        events = sum(each.events for each in self._answers)
        row = {
            "number": number,
            "at": time.time_ns() // 1_000,
            "seconds": seconds,
            "events": events,
            "closed": closed,
            "quarantined": len(self._plan.unread),
            "ranges": [
                {
                    **msgspec.structs.asdict(each),
                    "events": sum(share.rows for share in self._plan.shares if share.domain == each.domain),
                }
                for each in self._plan.ranges
            ],
        }
        for name in TABLES:
            self._lake.folder(name).settle()
        folder = self._lake.folder(BATCHES.name)
        self._append(folder, pa.Table.from_pylist([row], schema=BATCHES.schema))
        folder.settle()
        self._step(BATCHES.name)
        return events, closed


def _commit(folder: DeltaFolder, number: int, adds: Sequence[File], removes: Sequence[File] = ()) -> None:
    if adds or removes:
        folder.commit(adds, removes, batch=number)


def _rewritten(
    folder: DeltaFolder, files: Sequence[File], fresh: pa.Table, ends: pa.Table, drops: pa.Table
) -> list[File]:
    """Files with open messages that have changed; and all small files, when there are many.

    The others are not rewritten, so a large backlog, say a million dead-lettered messages, costs nothing per batch.
    """
    if not files:
        return []
    keys = folder.read(files, KEYS.names)
    moved = touched(keys, pa.concat_tables([fresh.select(KEYS.names), ends]), drops)
    bounds = np.cumsum([0, *(each.rows for each in files)])
    hit = np.add.reduceat(moved, bounds[:-1]) > 0
    small = [each.rows < _SMALL_ROWS for each in files]
    merge_small = sum(small) >= _SMALL_FILES
    return [file for file, now, few in zip(files, hit, small, strict=True) if now or (few and merge_small)]
