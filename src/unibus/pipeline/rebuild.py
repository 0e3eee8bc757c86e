"""Computes all tables again from the segments: after a repair, or for a table that is new.

    1. LAKE/.rebuild gets a new lake, batch by batch, while readers use the old tables.
    2. swap.json lists what has to be exchanged.
    3. Each table is exchanged by one commit that removes all of its files and adds the new ones. No reader sees half a
       table, and a query that reads the old files continues to read them.

A process that ends before step 2 leaves a lake that did not change: the next rebuild starts over. After step 2 the next
process that takes the lock of the lake finishes the exchange.
"""

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from unibus.capture.event_source import EventSource
from unibus.errors import LakeIncomplete, LakeMismatch
from unibus.pipeline.lake import Lake
from unibus.pipeline.plan import Bad, drop_plan
from unibus.pipeline.run import BatchResult, Progress, run_all
from unibus.pipeline.storage.files import File, sync_folder
from unibus.pipeline.storage.tables import BATCHES, TABLES
from unibus.pipeline.swap import Swap, exchange, save_swap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHADOW: Final = ".rebuild"


def rebuild(
    spark: "SparkSession | None",
    lake: Lake,
    sources: Sequence[EventSource],
    *,
    max_events: int | None = None,
    bad: Bad = "quarantine",
    progress: Progress | None = None,
    forget: Collection[str] = (),
) -> Iterator[BatchResult]:
    """Yields the batches of the new lake. The exchange follows the last one: exhaust the iterator.

    LakeMismatch if the lake has a domain that none of the sources has, unless `forget` names it.
    """
    with lake.lock():
        check_all_there(lake, sources, forget)
        with suppress(LakeIncomplete):  # An earlier exchange that cannot be finished: this rebuild replaces it.
            exchange(lake)
        shadow = os.path.join(lake.path, SHADOW)
        shutil.rmtree(shadow, ignore_errors=True)
        new = Lake(shadow)
        # No source may be set aside: its rows would be missing from the new tables.
        yield from run_all(spark, new, sources, max_events=max_events, bad=bad, progress=progress, set_aside=None)
        lake.remember(sources)
        save_swap(lake.path, _swap(lake, new))
        exchange(lake)
        drop_plan(lake.path)


def check_all_there(lake: Lake, sources: Sequence[EventSource], forget: Collection[str]) -> None:
    """LakeMismatch names a domain that the rebuild would lose."""
    last = lake.last_batch()
    places = {} if last is None else {each["domain"]: each["place"] for each in last["ranges"]}
    missing = [domain for domain in places if domain not in {*forget, *(source.domain for source in sources)}]
    if missing:
        raise LakeMismatch(
            f"the lake has {missing[0]!r}, which none of the sources has: it was read from {places[missing[0]]}",
            f"add that source with --from, or give the domain up with --forget {missing[0]}",
        )


def _swap(lake: Lake, new: Lake) -> Swap:
    """Batch numbers continue: a number that was used is never used again."""
    before = max(lake.folder(name).done() for name in TABLES)
    files = {name: new.folder(name).files() for name in TABLES}
    files[BATCHES.name] = _renumbered(new, before)
    return Swap(max(before + new.done(), before + 1), SHADOW, files)


def _renumbered(new: Lake, before: int) -> list[File]:
    folder = new.folder(BATCHES.name)
    rows = folder.read(folder.files())
    if not rows.num_rows:
        return []
    at = rows.column_names.index("number")
    numbers = pc.add(rows["number"], pa.scalar(before, pa.int64()))
    file = folder.write(rows.set_column(at, "number", numbers), 0)
    sync_folder(folder.path)  # No commit syncs it: swap.json is the first to name this file.
    return [file]
