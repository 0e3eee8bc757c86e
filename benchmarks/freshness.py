"""Seconds from a send until what it did can be read in the lake.

Three processes, as one would run them: a bus on SQLite in this one, which sends, receives and completes some hundred
messages a second; `unibus capture` beside it; `unibus pipeline run --every 2s` behind that. A message counts as visible
when the batch with its `sent` is complete. That table is looked at all the time, and the moment is taken from this
process's clock, as is that of the send. The first batches, in which a virtual machine warms up, do not count. The
design's target is 5 seconds for 95 of 100.
"""

import asyncio
import subprocess
import sys
import threading
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep, time

import pyarrow.parquet as pq

from benchmarks.capture import capturing, unibus
from benchmarks.disk import scratch
from benchmarks.durable_bus import RECEIVE_SECONDS_MAX, url
from benchmarks.durable_load import BATCH, BODY, QUEUE
from benchmarks.measure import Options, check_delivered
from benchmarks.report import Figure, Report
from unibus import MessageBus
from unibus.capture.manifest import Manifest
from unibus.capture.schema import KIND_CODES
from unibus.pipeline.lake import Lake

RATE = 200
SECONDS = 120
EVERY = "2s"
TARGET_SECONDS = 5.0
WARM_BATCHES = 4
START_SECONDS_MAX = 180.0
LOOK_AGAIN_SECONDS = 0.02


def run(options: Options) -> Report:
    with scratch() as folder:
        waited = asyncio.run(_measure(folder, RATE * options.count(SECONDS)))
    return Report("freshness", tuple(figures_of(waited)))


def figures_of(waited: list[float]) -> list[Figure]:
    ordered = sorted(waited)

    def share(part: float) -> float:
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

    return [
        Figure("send to visible, half of them", "s", share(0.5)),
        Figure("send to visible, 95 of 100", "s", share(0.95), TARGET_SECONDS),
        Figure("send to visible, the slowest", "s", ordered[-1]),
    ]


async def _measure(folder: Path, count: int) -> list[float]:
    captured, lake = folder / "captured", Lake(str(folder / "lake"))
    async with MessageBus(url(folder / "bus.db")) as bus:
        await bus.create_queue(QUEUE)
        with capturing(url(folder / "bus.db"), captured), _running(captured, lake), Watch(lake) as watch:
            await _load(bus, watch, None, WARM_BATCHES)
            warm = watch.reached()
            await _load(bus, watch, count, 0)
            total = await asyncio.to_thread(_last_seq, captured, watch)
    moments = {seq: at for seq, at in _sent(captured) if warm < seq <= total}
    check_delivered(len(moments) >= count, True)
    return [watch.visible_at(seq) - at for seq, at in moments.items()]


async def _load(bus: MessageBus, watch: "Watch", count: int | None, batches: int) -> None:
    """So many messages, or until so many batches were seen."""
    deadline = monotonic() + START_SECONDS_MAX
    begun, done = monotonic(), 0
    while done < count if count is not None else len(watch.batches) < batches:
        await bus.send(QUEUE, BODY)
        await bus.complete_many(await bus.receive_batch(QUEUE, BATCH, timeout=RECEIVE_SECONDS_MAX))
        done += 1
        await asyncio.sleep(max(0.0, begun + done / RATE - monotonic()))
        if count is None and monotonic() > deadline:
            raise RuntimeError("the pipeline made no batches")


@contextmanager
def _running(captured: Path, lake: Lake) -> Iterator[None]:
    command = unibus("pipeline", "run", "--every", EVERY, "--from", captured, "--lake", lake.path)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait()


class Watch:
    """Looks at the lake all the time: when was history visible, and up to where."""

    def __init__(self, lake: Lake) -> None:
        self.batches: list[tuple[int, float]] = []
        self._lake = lake
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch")

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        version = -1
        while not self._stop.wait(LOOK_AGAIN_SECONDS):
            found = self._lake.version("batches")
            if found != version and (batch := self._lake.last_batch()) is not None:
                version, at = found, time()
                self.batches.append((max(each["up_to"] for each in batch["ranges"]), at))

    def reached(self) -> int:
        return self.batches[-1][0] if self.batches else 0

    def visible_at(self, seq: int) -> float:
        return self.batches[bisect_left(self.batches, seq, key=lambda batch: batch[0])][1]


def _last_seq(captured: Path, watch: Watch) -> int:
    """What was captured by now, once all of it is visible."""
    sleep(float(EVERY.removesuffix("s")) * 2)  # What was sent last is sealed by then; all that is sealed is waited for.
    last = Manifest.load(str(captured)).last
    deadline = monotonic() + START_SECONDS_MAX
    while watch.reached() < last:
        if monotonic() > deadline:
            raise RuntimeError(f"{last} events were captured, and {watch.reached()} came to the lake")
        sleep(LOOK_AGAIN_SECONDS)
    return last


def _sent(captured: Path) -> Iterator[tuple[int, float]]:
    """Every send by its number, and when it was."""
    manifest = Manifest.load(str(captured))
    for segment in manifest.segments:
        rows = pq.read_table(manifest.path(segment.file), columns=["seq", "ts", "kind_code"])
        for row in rows.to_pylist():
            if row["kind_code"] == KIND_CODES["sent"]:
                yield row["seq"], row["ts"].timestamp()
