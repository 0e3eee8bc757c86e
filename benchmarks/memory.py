"""Bytes that one waiting message holds, beyond its payload.

Fair, because all messages share one payload object, so that only what the queue adds is counted; each contender is
measured in a process of its own, so that none profits from memory that another has returned. Counted twice: as
Python's allocator sees it (tracemalloc), and as the operating system does (resident memory), which also sees what
libraries allocate on their own. The peers queue (priority, sequence, message) with a small slotted message; the
limit is a deque of bare (priority, sequence, payload) tuples. pyee and blinker queue nothing. Target: 200 bytes.

The last figure is of another kind: what stays in memory for a message that waits in a SQLite store while its body is on
disk only. It bounds how large a backlog can be.
"""

import asyncio
import gc
import multiprocessing
import os
import queue
import resource
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import time_ns

from benchmarks.disk import scratch
from benchmarks.measure import PAYLOAD, PRIORITY, Options, check_delivered, rounds_of
from benchmarks.report import Figure, Report

MESSAGES = 200_000
TARGET_BYTES = 200.0
BATCH = 1_000
STORED_BODY = "x" * 1_000
"""So large that bodies left in memory would be seen in the figure."""

Fill = Callable[[int], AbstractContextManager[Callable[[], int]]]
"""Queues so many messages and keeps them until it is left; gives how to ask how many it holds."""

Meter = Callable[[Fill, int], float]


@dataclass(slots=True)
class PeerMessage:
    """About the least that a program puts around a payload; slots, in the peer's favour."""

    channel: str
    timestamp_ns: int
    body: object


def run(options: Options) -> Report:
    # Memory hardly varies between rounds, and every round starts a process.
    few = Options(min(options.rounds, 3), options.quick)
    return Report("memory", (*(_figure(figure, meter, few) for figure, meter in METERS.items()), _stored(few)))


def _stored(options: Options) -> Figure:
    trials = {"ours": partial(_in_own_process, growth_bytes, stored)}
    best = min(rounds_of(trials, options.count(MESSAGES), options)["ours"])
    return Figure("stored message, body on disk, resident", "bytes", best)


def _figure(figure: str, meter: Meter, options: Options) -> Figure:
    trials = {name: partial(_in_own_process, meter, fill) for name, fill in CONTENDERS.items()}
    rounds = rounds_of(trials, options.count(MESSAGES), options)
    best = {name: min(results) for name, results in rounds.items()}
    return Figure(figure, "bytes", best["ours"], TARGET_BYTES, {name: best[name] for name in PEERS}, best["limit"])


def _in_own_process(meter: Meter, fill: Fill, count: int) -> float:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        return pool.submit(meter, fill, count).result()


def traced_bytes(fill: Fill, count: int) -> float:
    _warm_up(fill)
    tracemalloc.start()
    before, _peak = tracemalloc.get_traced_memory()
    with fill(count) as held:
        gc.collect()
        after, _peak = tracemalloc.get_traced_memory()
        check_delivered(held(), count)
    tracemalloc.stop()
    return (after - before) / count


def resident_bytes(fill: Fill, count: int) -> float:
    _warm_up(fill)
    before = _resident_now()
    with fill(count) as held:
        gc.collect()
        after = _resident_now()
        check_delivered(held(), count)
    return (after - before) / count


def growth_bytes(fill: Fill, count: int) -> float:
    """What so many messages more take: the caches of a store, which have a size of their own, are filled before."""
    with fill(count) as held:
        gc.collect()
        before = _resident_now()
        check_delivered(held(), count)
        gc.collect()
        return (_resident_now() - before) / count


def _warm_up(fill: Fill) -> None:
    """Imports and first-use caches are not part of a message."""
    with fill(10) as held:
        check_delivered(held(), 10)
    gc.collect()


def _resident_now() -> int:
    status = Path("/proc/self/statm")
    if status.is_file():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    # Elsewhere the peak, which is the same here: the process only ever grows. macOS counts bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextmanager
def ours(count: int) -> Iterator[Callable[[], int]]:
    """A created channel keeps what is published while it has no subscriber."""
    from unibus.sync import MessageBus

    bus = MessageBus()
    try:
        bus.create_channel("c", max_queue_size=0)
        for _ in range(count):
            bus.publish("c", PAYLOAD)
        yield lambda: bus.queue_size("c") or 0
    finally:
        bus.close(0)


@contextmanager
def stored(count: int) -> Iterator[Callable[[], int]]:
    """In a store that keeps as few bodies in memory as it can. What it gives sends as many again and counts these."""
    from unibus.sync import MessageBus

    def send() -> int:
        before = bus.entities.get("q").active
        for start in range(0, count, BATCH):
            bus.send_many("q", [STORED_BODY] * min(BATCH, count - start))
        return bus.entities.get("q").active - before

    with scratch() as folder, MessageBus(f"sqlite:///{folder}/backlog.db?durability=D1&memory_budget_mb=1") as bus:
        bus.create_queue("q")
        check_delivered(send(), count)
        yield send


@contextmanager
def thread_queue(count: int) -> Iterator[Callable[[], int]]:
    waiting: queue.PriorityQueue[tuple[int, int, PeerMessage]] = queue.PriorityQueue()
    for sequence in range(count):
        waiting.put((PRIORITY, sequence, PeerMessage("c", time_ns(), PAYLOAD)))
    yield waiting.qsize


@contextmanager
def asyncio_queue(count: int) -> Iterator[Callable[[], int]]:
    waiting: asyncio.PriorityQueue[tuple[int, int, PeerMessage]] = asyncio.PriorityQueue()
    for sequence in range(count):
        waiting.put_nowait((PRIORITY, sequence, PeerMessage("c", time_ns(), PAYLOAD)))
    yield waiting.qsize


@contextmanager
def deque_of_tuples(count: int) -> Iterator[Callable[[], int]]:
    waiting: deque[tuple[int, int, object]] = deque()
    for sequence in range(count):
        waiting.append((PRIORITY, sequence, PAYLOAD))
    yield waiting.__len__


METERS: dict[str, Meter] = {"queued message, traced": traced_bytes, "queued message, resident": resident_bytes}
PEERS: dict[str, Fill] = {"queue.PriorityQueue": thread_queue, "asyncio.PriorityQueue": asyncio_queue}
CONTENDERS: dict[str, Fill] = {"ours": ours, **PEERS, "limit": deque_of_tuples}
