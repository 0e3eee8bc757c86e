"""Push and pop of the priority queue alone, per operation, with 5 and with 256 priorities in use.

Fair, because each contender's loop is written out by hand (a shared one would charge its extra call to the fastest
most), items go in by the same list of priorities, and what comes out is checked to be in (priority, arrival) order.
The peers carry a sequence number in the item, which they need for that order. The limit is a raw deque, which has
no order but arrival; it is checked for that. The target is 0.1 µs.
"""

import asyncio
import queue
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from time import perf_counter_ns

from benchmarks.measure import Options, Undelivered, rounds_of
from benchmarks.report import Figure, Report
from unibus.core.flow.queue import PriorityQueue

ITEMS = 50_000
TARGET_NS = 100.0

LEVELS = {"5 priorities": (0, 25, 50, 75, 100), "256 priorities": tuple((number * 97) % 256 for number in range(256))}
"""The five named ones; and all there are, in an order that is neither rising nor falling (97 is odd: none repeats)."""

Timing = tuple[float, float]
"""Nanoseconds per push, nanoseconds per pop."""


def run(options: Options) -> Report:
    figures = [figure for name, levels in LEVELS.items() for figure in _figures(name, levels, options)]
    return Report("queue_ops", tuple(figures))


def _figures(name: str, levels: tuple[int, ...], options: Options) -> list[Figure]:
    trials = {contender: partial(_trial, timed, levels) for contender, timed in CONTENDERS.items()}
    rounds = rounds_of(trials, options.count(ITEMS), options)
    return [
        _figure(
            f"{operation}, {name}", {contender: min(t[part] for t in timings) for contender, timings in rounds.items()}
        )
        for part, operation in enumerate(("push", "pop"))
    ]


def _figure(figure: str, best: dict[str, float]) -> Figure:
    return Figure(figure, "ns", best["ours"], TARGET_NS, {name: best[name] for name in PEERS}, best["limit"])


def _trial(timed: "Timed", levels: tuple[int, ...], count: int) -> Timing:
    """Items are their own arrival numbers, so that the order in which they must come out is known."""
    priorities = [levels[number % len(levels)] for number in range(count)]
    timing, popped = timed(priorities)
    ordered = list(range(count)) if timed is raw_deque else sorted(range(count), key=priorities.__getitem__)
    if popped != ordered:
        raise Undelivered("the queue gave items back in a wrong order")
    push_ns, pop_ns = timing
    return push_ns / count, pop_ns / count


Timed = Callable[[list[int]], tuple[Timing, list[int]]]
"""Pushes one item per priority, pops them all; gives the nanoseconds of each phase and what came out."""


def ours(priorities: list[int]) -> tuple[Timing, list[int]]:
    waiting: PriorityQueue[int] = PriorityQueue(0)
    push, pop = waiting.push_with_priority, waiting.pop
    start = perf_counter_ns()
    for number, priority in enumerate(priorities):
        push(number, priority)
    between = perf_counter_ns()
    popped = [pop() for _ in priorities]
    end = perf_counter_ns()
    return (between - start, end - between), popped


def heap(priorities: list[int]) -> tuple[Timing, list[int]]:
    waiting: list[tuple[int, int, int]] = []
    start = perf_counter_ns()
    for number, priority in enumerate(priorities):
        heappush(waiting, (priority, number, number))
    between = perf_counter_ns()
    popped = [heappop(waiting)[2] for _ in priorities]
    end = perf_counter_ns()
    return (between - start, end - between), popped


def thread_queue(priorities: list[int]) -> tuple[Timing, list[int]]:
    waiting: queue.PriorityQueue[tuple[int, int, int]] = queue.PriorityQueue()
    push, pop = waiting.put_nowait, waiting.get_nowait
    start = perf_counter_ns()
    for number, priority in enumerate(priorities):
        push((priority, number, number))
    between = perf_counter_ns()
    popped = [pop()[2] for _ in priorities]
    end = perf_counter_ns()
    return (between - start, end - between), popped


def asyncio_queue(priorities: list[int]) -> tuple[Timing, list[int]]:
    waiting: asyncio.PriorityQueue[tuple[int, int, int]] = asyncio.PriorityQueue()
    push, pop = waiting.put_nowait, waiting.get_nowait
    start = perf_counter_ns()
    for number, priority in enumerate(priorities):
        push((priority, number, number))
    between = perf_counter_ns()
    popped = [pop()[2] for _ in priorities]
    end = perf_counter_ns()
    return (between - start, end - between), popped


def raw_deque(priorities: list[int]) -> tuple[Timing, list[int]]:
    waiting: deque[int] = deque()
    push, pop = waiting.append, waiting.popleft
    start = perf_counter_ns()
    for number, _priority in enumerate(priorities):
        push(number)
    between = perf_counter_ns()
    popped = [pop() for _ in priorities]
    end = perf_counter_ns()
    return (between - start, end - between), popped


PEERS: dict[str, Timed] = {
    "heapq": heap,
    "queue.PriorityQueue": thread_queue,
    "asyncio.PriorityQueue": asyncio_queue,
}
CONTENDERS: dict[str, Timed] = {"ours": ours, **PEERS, "limit": raw_deque}
