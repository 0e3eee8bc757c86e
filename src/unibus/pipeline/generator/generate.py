"""`unibus pipeline generate`: synthetic history, in capture directories like those of `unibus capture`.

For trials, tests and benchmarks: any number of messages, by the rules of the bus, the same for the same seed.
Time is cut into slices of about as many messages each. Of one slice everything is drawn at once, in arrays; what
happens later waits for its slice. So memory holds a slice and what is in flight, however long the history is, and while
one slice is drawn the segments of the one before are written.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from unibus.capture.manifest import Manifest, is_capture
from unibus.capture.segments import SegmentWriter
from unibus.errors import UsageError
from unibus.pipeline.generator.lifecycles import Numbers
from unibus.pipeline.generator.rows import ATTR, GeneratedRows, RowOrder, Values
from unibus.pipeline.generator.sending import Sending, arrivals
from unibus.pipeline.generator.tables import Tables
from unibus.pipeline.generator.world import HOUR_US, Ints, WorldPlan, domain_name, domain_of, times_of_day
from unibus.stores.files.local_folder import local_folder

SLICE_MESSAGES: Final = 100_000
SEGMENT_ROWS: Final = 250_000
CHANNELS_MAX: Final = 2_000
DOMAINS_MAX: Final = 100
HOURS_MAX: Final = 87_600
"""Ten years. The load of each minute, and the hourly events, are in memory for the whole time."""

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Generated:
    """The result. `folders` has one capture directory for each domain."""

    messages: int
    events: int
    bytes: int
    folders: tuple[str, ...]


def generate(
    out: str, plan: WorldPlan, progress: Progress | None = None, segment_rows: int = SEGMENT_ROWS
) -> Generated:
    """Create a capture directory for each domain below `out`. Existing ones are never overwritten."""
    _check(plan)
    out = local_folder(out, "a capture")
    folders = [str(Path(out) / domain_name(plan, number)) for number in range(plan.domains)]
    for folder in folders:
        if is_capture(folder):
            raise UsageError(f"{folder} already exists", "name another directory with --out, or remove it")
    with ThreadPoolExecutor(2, "generate") as pool:
        streams = [_Stream(folder, plan, number, pool, segment_rows) for number, folder in enumerate(folders)]
        try:
            _tell(plan, streams, progress or (lambda done, total: None))
            for stream in streams:
                stream.finish()
        finally:
            for stream in streams:
                stream.close()
    written = [Manifest.load(folder).segments for folder in folders]
    size = sum(each.bytes + (each.bodies.bytes if each.bodies else 0) for segments in written for each in segments)
    return Generated(plan.messages, sum(stream.order.last for stream in streams), size, tuple(folders))


def _check(plan: WorldPlan) -> None:
    if plan.messages < 1:
        raise UsageError("--messages must be at least 1")
    if not 1 <= plan.domains <= DOMAINS_MAX:
        raise UsageError(f"--domains must be 1 to {DOMAINS_MAX}")
    if not 1 <= plan.channels <= CHANNELS_MAX:
        raise UsageError(f"--channels must be 1 to {CHANNELS_MAX}")
    if not 0 < plan.hours <= HOURS_MAX:
        raise UsageError("--span must be above 0 and at most ten years")
    if plan.seed < 0:
        raise UsageError("--seed must be a whole number from 0 on")


def _tell(plan: WorldPlan, streams: "list[_Stream]", progress: Progress) -> None:
    shares, instants = times_of_day(plan)
    slices = -(-plan.messages // SLICE_MESSAGES)
    for number in range(slices):
        done, todo = (plan.messages * each // slices for each in (number, number + 1))
        chance = np.random.default_rng([plan.seed, number, 17])
        spread = (number + np.sort(chance.random(todo - done))) / slices
        starts = np.interp(spread, shares, instants).astype(np.int64)
        # A slice has at most as many flows as messages, so the numbers of flows are unique.
        came = arrivals(plan, chance, done, todo - done, starts)
        until = plan.end_us if number == slices - 1 else int(np.interp((number + 1) / slices, shares, instants))
        for place, stream in enumerate(streams):
            here = came.domain == place
            stream.tell(came.msg[here], came.at[here], until, np.random.default_rng([plan.seed, number, 19, place]))
        progress(todo, plan.messages)


class _Stream:
    """Generates one domain, and writes its segments."""

    def __init__(self, folder: str, plan: WorldPlan, number: int, pool: ThreadPoolExecutor, segment_rows: int) -> None:
        domain = domain_of(plan, number)
        self.order = RowOrder(len(domain.names) + 1)
        self._rows = GeneratedRows()
        self._numbers = Numbers()
        self._sending = Sending(domain, plan, self._rows, self._numbers)
        self._tables = Tables(domain, plan.seed)
        self._plan = plan
        self._channels = len(domain.names)
        self._segment_rows = segment_rows
        self._pool = pool
        self._waiting: list[pa.Table] = []
        self._written: Future[None] | None = None
        self._writer = SegmentWriter(folder, domain.name)
        self._begin()

    def _begin(self) -> None:
        """Every entity is declared before the first send, and a reader moves its position once an hour."""
        plan = self._plan
        columns: dict[str, Values] = {"chan": np.arange(self._channels), "attr": ATTR["declared"]}
        self._rows.add("declared", np.full(self._channels, plan.start_us), columns)
        hours = np.arange(plan.start_us + HOUR_US, plan.end_us, HOUR_US)
        self._rows.add("advanced", hours, {"chan": self._channels, "attr": ATTR["position"], "value": 1})

    def tell(self, msg: Ints, at: Ints, until_us: int, chance: np.random.Generator) -> None:
        self._sending.send(msg, at, chance)
        seq, rows = self.order.up_to(self._rows, until_us)
        self._waiting.append(self._tables.events(seq, rows))
        while sum(table.num_rows for table in self._waiting) >= self._segment_rows:
            self._seal()

    def _seal(self) -> None:
        """Write the next segment in another thread: at most one per domain at a time, since their order matters."""
        table = pa.concat_tables(self._waiting)
        self._waiting = [table.slice(self._segment_rows)]
        self._wait()
        self._written = self._pool.submit(self._write, table.slice(0, self._segment_rows))

    def _write(self, table: pa.Table) -> None:
        table = table.combine_chunks()
        self._writer.write(table, self._tables.bodies(table) if self._plan.bodies else None)

    def _wait(self) -> None:
        if self._written is not None:
            self._written.result()

    def finish(self) -> None:
        if sum(table.num_rows for table in self._waiting):
            self._seal()
        self._wait()

    def close(self) -> None:
        self._writer.close()
