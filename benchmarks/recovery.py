"""Seconds from opening a store with a million messages until the first of them is received.

On SQLite, 200-byte bodies, twice: a store that was closed, and one whose process was killed in the middle of its
life. Each round opens a copy of the same files in a process of its own, imports done, so that no round profits from
what the one before had rebuilt; the files are in the cache of the operating system. What waits is counted afterwards.
The limit is SQLite reading as many rows with such bodies. Libraries that keep their order in tables open at once and
pay with each message instead (`durable` shows what); so none is here. The target is the design's 10 s for a million.
"""

import asyncio
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.disk import scratch
from benchmarks.durable_bus import FILL_BATCH, RECEIVE_SECONDS_MAX, filled, url, waiting
from benchmarks.durable_load import QUEUE, in_batches
from benchmarks.durable_peers import raw_connection, raw_insert
from benchmarks.measure import Options, check_delivered, rounds_of
from benchmarks.report import Figure, Report
from unibus import MessageBus

SIZES = (100_000, 1_000_000)
TARGETS_SECONDS = {1_000_000: 10.0}
ROUNDS_MAX = 3
STORE = "bus.db"


def run(options: Options) -> Report:
    few = Options(min(options.rounds, ROUNDS_MAX), options.quick)
    figures = [figure for size in SIZES for figure in _figures(few.count(size), few)]
    return Report("recovery", tuple(figures))


def _figures(size: int, options: Options) -> list[Figure]:
    with scratch() as folder:
        prepared = {name: _prepared(fill, folder / name, size) for name, fill in FILLS.items()}
        trials = {name: partial(_on_a_copy, OPENS[name], source) for name, source in prepared.items()}
        rounds = rounds_of(trials, size, options, warm_up=False)
    best = {name: min(seconds) for name, seconds in rounds.items()}
    target = TARGETS_SECONDS.get(size)
    return [
        Figure(f"{size:,} messages, {name}", "s", best[name], target, limit=best["limit"]) for name in (CLOSED, KILLED)
    ]


Fill = Callable[[Path, int], None]
Open = Callable[[Path, int], float]


def _prepared(fill: Fill, folder: Path, size: int) -> Path:
    folder.mkdir()
    process = multiprocessing.get_context("spawn").Process(target=fill, args=(folder, size))
    process.start()
    process.join()
    expected = -signal.SIGKILL if fill is fill_and_be_killed else 0
    if process.exitcode != expected:
        raise RuntimeError(f"filling the store ended with {process.exitcode} instead of {expected}")
    return folder


def _on_a_copy(open_store: Open, source: Path, size: int) -> float:
    copy = Path(shutil.copytree(source, source.with_name(f"{source.name}-copy")))
    try:
        return _in_own_process(open_store, copy, size)
    finally:
        shutil.rmtree(copy)


def _in_own_process(open_store: Open, folder: Path, size: int) -> float:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        return pool.submit(open_store, folder, size).result()


def fill_and_close(folder: Path, size: int) -> None:
    async def fill() -> None:
        bus = await filled(folder / STORE, size)
        await bus.close()

    asyncio.run(fill())


def fill_and_be_killed(folder: Path, size: int) -> None:
    """Dies as by `kill -9`: nothing is flushed, closed or tidied by anybody but the kernel."""

    async def fill() -> None:
        await filled(folder / STORE, size)
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(fill())


def fill_raw(folder: Path, size: int) -> None:
    with closing(raw_connection(folder)) as connection:
        connection.execute("PRAGMA synchronous = NORMAL")
        for batch in in_batches(size, FILL_BATCH):
            raw_insert(connection, batch)


def open_ours(folder: Path, size: int) -> float:
    return asyncio.run(_open_ours(folder, size))


async def _open_ours(folder: Path, size: int) -> float:
    start = perf_counter()
    async with MessageBus(url(folder / STORE)) as bus:
        first = await bus.receive_batch(QUEUE, 1, timeout=RECEIVE_SECONDS_MAX)
        elapsed = perf_counter() - start
        check_delivered(len(first), 1)
        check_delivered(await waiting(bus), size)
    return elapsed


def open_raw(folder: Path, size: int) -> float:
    start = perf_counter()
    with closing(raw_connection(folder)) as connection:
        read = sum(1 for _row in connection.execute("SELECT id, body FROM queue ORDER BY id"))
        elapsed = perf_counter() - start
    check_delivered(read, size)
    return elapsed


CLOSED, KILLED = "closed", "killed"
FILLS: dict[str, Fill] = {CLOSED: fill_and_close, KILLED: fill_and_be_killed, "limit": fill_raw}
OPENS: dict[str, Open] = {CLOSED: open_ours, KILLED: open_ours, "limit": open_raw}
