"""From events to the tables of a lake: events a second and processor time, at 1, 5 and 20 million events.

One session that is warm, all cores of the machine. A history of the generator, in batches of a million events: each one
appends to the tables what is new and replaces what is open, and is complete on the disk. The limit is Spark reading the
same columns of the same files and throwing the rows away. The peers compute the same tables from the same files, all at
once and from the beginning, and have to count the same. Processor time is that of the driver, of the virtual machine
and of its Python workers together. Then two ways in which a batch could become slower: by the history that lies behind
it, and by messages that are open. At last how long a report from the largest lake takes.

The targets are the design's: a fifth of the limit, and a cost per million that grows by less than 1.3 from 1 to 20
million.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.disk import scratch
from benchmarks.measure import Options, Result, check_delivered
from benchmarks.pipeline_peers import PEERS, Counted
from benchmarks.pipeline_report import report_figures
from benchmarks.report import Figure, Report
from benchmarks.spark import family_of, session, thrown_away
from unibus.capture.event_source import EventSource
from unibus.capture.manifest import Manifest
from unibus.capture.sources import open_sources
from unibus.pipeline.generator.generate import generate
from unibus.pipeline.generator.world import WorldPlan
from unibus.pipeline.jobs.task import COLUMNS
from unibus.pipeline.lake import Lake
from unibus.pipeline.run import run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MILLION = 1_000_000
SIZES = (1 * MILLION, 5 * MILLION, 20 * MILLION)
BATCH = MILLION
PIECES = 4
"""Segments of a batch."""
EVENTS_PER_MESSAGE = 3.6
"""Somewhat fewer than the generator makes, so that there are enough."""
OPEN = MILLION
ROUNDS_MAX = 2
SCAN_TIMES, GROWTH_TIMES = 5.0, 1.3


@dataclass(frozen=True)
class Cost:
    """What was done with so many events."""

    events: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    @property
    def cpu_per_million(self) -> float:
        return self.cpu / self.events * MILLION

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.events + other.events, self.seconds + other.seconds, self.cpu + other.cpu)


@dataclass(frozen=True)
class Stand:
    """How far a lake has come: all that it has cost, what the last batch did, and up to where each domain was read."""

    total: Cost
    last: Cost
    reached: dict[str, int]


def run(options: Options) -> Report:
    few = Options(min(options.rounds, ROUNDS_MAX), options.quick)
    with scratch() as folder, session() as spark:
        bench = Bench(spark, folder, few)
        bench.warm_up()
        figures = [*bench.sizes(), bench.open_messages()]
        _say("reports")
        asked = report_figures(bench.largest, few.rounds)
    return Report("pipeline", (*figures, *asked))


def _say(text: str) -> None:
    """It takes minutes, so it reports its progress."""
    print(f"pipeline: {text} …", file=sys.stderr, flush=True)


class Bench:
    """One session, one folder, one history that all of them share."""

    def __init__(self, spark: "SparkSession", folder: Path, options: Options) -> None:
        self._spark = spark
        self._family = family_of(spark)
        self._folder = folder
        self._options = options
        self._batch = options.count(BATCH)
        self._lakes = 0
        self.largest = folder
        """The lake with the most events; set by `sizes`."""

    def _history(self, name: str, events: int, plan: WorldPlan | None = None) -> list[EventSource]:
        plan = plan or WorldPlan(round(events / EVENTS_PER_MESSAGE))
        _say(f"making history of {plan.messages:,} messages")
        generate(str(self._folder / name), plan, segment_rows=self._batch // PIECES)
        return open_sources(str(self._folder / name))

    def _lake(self) -> Lake:
        self._lakes += 1
        return Lake(str(self._folder / f"lake-{self._lakes}"))

    def warm_up(self) -> None:
        """Twice, because a virtual machine compiles what it has seen often."""
        sources = self._history("warm-up", 2 * self._batch)
        for _ in range(2):
            self.fill(self._lake(), sources, 2 * self._batch)
        self._scan(files_of(sources, {source.domain: source.last() for source in sources}))

    def fill(self, lake: Lake, sources: list[EventSource], events: int) -> list[Stand]:
        """Batch after batch, until there are so many events in the lake."""
        stands: list[Stand] = []
        total = Cost(0, 0.0, 0.0)
        _say(f"batches up to {events:,} events")
        while total.events < events:
            result, last = self._measured(lambda: run_once(self._spark, lake, sources, max_events=self._batch))
            if result is None:
                break
            last = Cost(result.events, last.seconds, last.cpu)
            total = total + last
            _say(f"{total.events:,} events, {last.rate:,.0f} a second")
            stands.append(Stand(total, last, {each.domain: each.up_to for each in result.ranges}))
        return stands

    def _measured(self, work: Callable[[], Result]) -> tuple[Result, Cost]:
        return measured(work, self._family.seconds)

    # With size

    def sizes(self) -> list[Figure]:
        sizes = [self._options.count(size) for size in SIZES]
        sources = self._history("history", sizes[-1])
        rounds = []
        for _ in range(self._options.rounds):
            lake = self._lake()
            rounds.append(self.fill(lake, sources, sizes[-1]))
            self.largest = Path(lake.path)
        figures = []
        for size in sizes:
            stands = [next(stand for stand in stands if stand.total.events >= size) for stands in rounds]
            figures += self._at_size(size, stands, sources, lake if size == sizes[-1] else None)
        return [*figures, *growth_of(rounds, sizes[-1])]

    def _at_size(self, size: int, stands: list[Stand], sources: list[EventSource], lake: Lake | None) -> list[Figure]:
        ours = [stand.total for stand in stands]
        files = files_of(sources, stands[0].reached)
        _say(f"the limit and the peers at {size:,} events")
        scans = [self._scan(files) for _ in range(self._options.rounds)]
        peers, counts = self._peers(files, ours[0].events)
        if lake is not None:
            counts["unibus"] = counted(lake)
        if len(set(counts.values())) > 1:
            raise RuntimeError(f"they do not agree: {counts}")
        return figures_of(size, ours, scans, peers)

    def _scan(self, files: list[str]) -> Cost:
        frame = self._spark.read.parquet(*files).select(*COLUMNS)
        _none, cost = self._measured(lambda: thrown_away(frame))
        return Cost(sum(pq.read_metadata(file).num_rows for file in files), cost.seconds, cost.cpu)

    def _peers(self, files: list[str], events: int) -> tuple[dict[str, list[Cost]], dict[str, Counted]]:
        costs: dict[str, list[Cost]] = {name: [] for name in PEERS}
        counts = {}
        for number in range(self._options.rounds):
            for name, job in PEERS.items():
                out = self._folder / f"{name}-{events}-{number}"
                out.mkdir()
                counts[name], cost = measured(lambda job=job, out=out: job(files, out), process_time)  # type: ignore[misc]
                check_delivered(counts[name].events, events)
                costs[name].append(Cost(events, cost.seconds, cost.cpu))
        return costs, counts

    # With open messages

    def open_messages(self) -> Figure:
        """The same batch, in a lake with few open messages and in one with many."""
        count = self._options.count(OPEN)
        sources = self._history("batch", 2 * self._batch)
        waiting = self._history("open", count, WorldPlan(count, domains=1, hours=1, unread=1.0, prefix="open-"))
        best: dict[str, Cost] = {}
        for _ in range(self._options.rounds):
            for name, others in (("few", []), ("many", waiting)):
                lake = self._lake()
                while run_once(self._spark, lake, others):
                    pass
                last = self.fill(lake, [*others, *sources], 2 * self._batch)[-1].last
                best[name] = min(last, best.get(name, last), key=lambda cost: cost.seconds)
        held = counted(lake).open / MILLION
        seconds = best["many"].seconds / best["few"].seconds
        return Figure(f"batch beside {held:.2g} M open over beside few", "times", seconds)


def measured(work: Callable[[], Result], cpu: Callable[[], float]) -> tuple[Result, Cost]:
    """`cpu` tells the processor time so far. That of peers is this process's: a virtual machine that is there, and
    tidies up by itself, is not theirs."""
    start, begun = perf_counter(), cpu()
    result = work()
    return result, Cost(0, perf_counter() - start, cpu() - begun)


def figures_of(size: int, ours: list[Cost], scans: list[Cost], peers: dict[str, list[Cost]]) -> list[Figure]:
    def rate(costs: list[Cost]) -> float:
        return max(cost.rate for cost in costs)

    def cpu(costs: list[Cost]) -> float:
        return min(cost.cpu_per_million for cost in costs)

    about = f"{size / MILLION:g} M events"
    rates = {name: rate(costs) for name, costs in peers.items()}
    cpus = {name: cpu(costs) for name, costs in peers.items()}
    return [
        Figure(f"{about}", "events/s", rate(ours), rate(scans) / SCAN_TIMES, rates, rate(scans)),
        Figure(f"{about}: processor, a million", "s", cpu(ours), None, cpus, cpu(scans)),
        Figure(f"{about}: a pure scan over ours", "times", rate(scans) / rate(ours), SCAN_TIMES),
    ]


def growth_of(rounds: list[list[Stand]], size: int) -> list[Figure]:
    """What a batch costs on top of all the others, over what the second one cost, by the best of the rounds.

    Not the first: a lake that is empty is another case, and a virtual machine may not be warm yet.
    """

    def best(number: int, of: Callable[[Cost], float]) -> float:
        return min(of(stands[number].last) for stands in rounds)

    about = f"batch on {size / MILLION:g} M events over one on the first"
    seconds = best(-1, lambda cost: 1 / cost.rate) / best(1, lambda cost: 1 / cost.rate)
    cpu = best(-1, lambda cost: cost.cpu_per_million) / best(1, lambda cost: cost.cpu_per_million)
    return [
        Figure(f"{about}: time", "times", seconds, GROWTH_TIMES),
        Figure(f"{about}: processor", "times", cpu, GROWTH_TIMES),
    ]


def files_of(sources: list[EventSource], reached: dict[str, int]) -> list[str]:
    """The segments that were read: batches end where segments do."""
    files = []
    for source in sources:
        manifest = Manifest.load(source.where)
        inside = [segment for segment in manifest.segments if segment.last <= reached[source.domain]]
        check_delivered(inside[-1].last if inside else 0, reached[source.domain])
        files += [manifest.path(segment.file) for segment in inside]
    return files


def counted(lake: Lake) -> Counted:
    """What the tables of a lake add up to."""

    def total(table: str, measure: str | None = None) -> int:
        columns = ["n"] if measure is None else ["n", "measure"]
        found = 0
        for file in lake.files(table):
            rows = pq.read_table(file, columns=columns, partitioning=None)
            rows = rows if measure is None else rows.filter(pc.equal(rows["measure"], measure))
            found += pc.sum(rows["n"]).as_py() or 0
        return found

    folder = lake.folder("messages")
    rows = {True: 0, False: 0}
    for file in folder.files():
        rows[bool(file.open)] += pq.read_metadata(folder.full_path(file)).num_rows
    return Counted(total("channel_minute"), rows[False], rows[True], total("latency_hist", "total"), total("failures"))
