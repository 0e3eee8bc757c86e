"""Everything anew from the segments: after a repair, or for a table that is new.

The new lake is made beside (LAKE/.rebuild), batch by batch, while readers and the old tables go on as they are. Then
each table is exchanged by one commit that removes all of its files and adds the new ones, so nobody sees half a table,
and who reads the old files goes on reading them. What has to be exchanged is written down first (swap.json): ended in
between, whoever works on the lake next goes on with it. A rebuild that was ended before that starts over.
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
    """The batches of the new lake, one after the other. It is exchanged after the last: do not stop before the end.
    LakeMismatch where the lake has a domain that no source brings, unless that is to be forgotten."""
    with lake.lock():
        check_all_there(lake, sources, forget)
        with suppress(LakeIncomplete):  # An earlier one that cannot be finished: all of it is made anew here.
            exchange(lake)
        shadow = os.path.join(lake.path, SHADOW)
        shutil.rmtree(shadow, ignore_errors=True)
        new = Lake(shadow)
        # A source that is set aside here would be lost: the new tables have nothing of it.
        yield from run_all(spark, new, sources, max_events=max_events, bad=bad, progress=progress, set_aside=None)
        lake.remember(sources)
        save_swap(lake.path, _swap(lake, new))
        exchange(lake)
        drop_plan(lake.path)


def check_all_there(lake: Lake, sources: Sequence[EventSource], forget: Collection[str]) -> None:
    """LakeMismatch names a domain that would be lost."""
    last = lake.last_batch()
    places = {} if last is None else {each["domain"]: each["place"] for each in last["ranges"]}
    missing = [domain for domain in places if domain not in {*forget, *(source.domain for source in sources)}]
    if missing:
        raise LakeMismatch(
            f"the lake has {missing[0]!r}, which none of the sources brings: it came from {places[missing[0]]}",
            f"name that too with --from, or lose it with --forget {missing[0]}",
        )


def _swap(lake: Lake, new: Lake) -> Swap:
    """Batches go on counting: a number that was used is not used again."""
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
    sync_folder(folder.path)  # No commit does it: this file is named by swap.json first.
    return [file]
