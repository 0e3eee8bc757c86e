"""What a send and a receive cost with a million messages waiting, against what they cost with a thousand.

On SQLite at its default D2, 200-byte bodies. Sent one by one from 256 tasks, received and completed in batches of 100,
in portions of 500, so that the backlog about keeps its size. What is received is the oldest, so in a large backlog
something that was written long ago.
Each backlog lives in a process of its own, because a large heap must not slow down the small backlog as well and so
flatter the ratio; the processes take turns. The target is the design's: at most 1.5 times the cost.
"""

import asyncio
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter_ns

from benchmarks.disk import scratch
from benchmarks.durable_bus import RECEIVE_SECONDS_MAX, filled, waiting
from benchmarks.durable_load import BATCH, QUEUE, TASKS, Phase, from_many_tasks
from benchmarks.measure import Options, check_delivered, rounds_of
from benchmarks.report import Figure, Report
from unibus import MessageBus

SIZES = (1_000, 10_000, 100_000, 1_000_000)
OPERATIONS = 10_000
PORTION = 500
TARGET_TIMES = 1.5
SECONDS_MAX = 60.0
"""More than any phase takes: here the number of messages ends it."""

KINDS = {"send_ns": f"send, {TASKS} tasks", "receive_ns": f"receive and complete, by {BATCH}"}


@dataclass(frozen=True)
class Costs:
    """Nanoseconds per message."""

    send_ns: float
    receive_ns: float


def run(options: Options) -> Report:
    sizes = [options.count(size) for size in SIZES]
    best = {kind: _best(kind, rounds) for rounds in [_rounds(sizes, options)] for kind in KINDS}
    figures = [figure for kind, name in KINDS.items() for figure in figures_of(name, best[kind])]
    return Report("backlog", tuple(figures))


def figures_of(name: str, costs: dict[int, float]) -> list[Figure]:
    """The cost with the smallest backlog as it is, the others as multiples of it."""
    smallest, *larger = sorted(costs)
    base = Figure(f"{name}, {smallest:,} waiting", "ns", costs[smallest])
    return [base] + [
        Figure(f"{name}, {size:,} over {smallest:,}", "times", costs[size] / costs[smallest], TARGET_TIMES)
        for size in larger
    ]


def _best(kind: str, rounds: dict[int, list[Costs]]) -> dict[int, float]:
    return {size: min(getattr(costs, kind) for costs in found) for size, found in rounds.items()}


def _rounds(sizes: list[int], options: Options) -> dict[int, list[Costs]]:
    with scratch() as folder, ExitStack() as closing:
        trials = {str(size): closing.enter_context(_backlog(folder, size)) for size in sizes}
        rounds = rounds_of(trials, options.count(OPERATIONS), options)
    return {int(size): costs for size, costs in rounds.items()}


@contextmanager
def _backlog(folder: Path, size: int) -> "Iterator[partial[Costs]]":
    """A process that holds a filled store; gives what measures in it."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        pool.submit(open_here, folder / f"{size}.db", size).result()
        try:
            yield partial(_measure_in, pool, size)
        finally:
            pool.submit(close_here).result()


def _measure_in(pool: ProcessPoolExecutor, size: int, count: int) -> Costs:
    return pool.submit(measure_here, size, count).result()


@dataclass(frozen=True)
class Filled:
    """The store of this process, and the loop that it lives on between two measurements."""

    runner: asyncio.Runner
    bus: MessageBus


_filled: list[Filled] = []


def open_here(path: Path, size: int) -> None:
    runner = asyncio.Runner()
    _filled.append(Filled(runner, runner.run(filled(path, size))))


def close_here() -> None:
    here = _filled.pop()
    here.runner.run(here.bus.close())
    here.runner.close()


def measure_here(size: int, count: int) -> Costs:
    (here,) = _filled
    return here.runner.run(_measure(here.bus, size, count))


async def _measure(bus: MessageBus, size: int, count: int) -> Costs:
    send_ns = receive_ns = 0
    for done in range(0, count, PORTION):
        portion = min(PORTION, count - done)
        start = perf_counter_ns()
        await from_many_tasks(lambda body: bus.send(QUEUE, body), Phase(portion, SECONDS_MAX))
        between = perf_counter_ns()
        await _receive(bus, Phase(portion, SECONDS_MAX), portion)
        receive_ns += perf_counter_ns() - between
        send_ns += between - start
    check_delivered(await waiting(bus), size)
    return Costs(send_ns / count, receive_ns / count)


async def _receive(bus: MessageBus, phase: Phase, count: int) -> None:
    while phase.goes_on():
        messages = await bus.receive_batch(QUEUE, min(BATCH, count - phase.done), timeout=RECEIVE_SECONDS_MAX)
        phase.received(len(messages))
        await bus.complete_many(messages)
