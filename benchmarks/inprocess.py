"""Time from publish to handler inside one process, per message.

Fair, because all contenders take turns in one run, send the same prebuilt payload and call the same plain function
that counts, and because the clock stops only when the last message has been handled. Ours is the public API with
its defaults but for an unbounded channel: a publisher that does nothing else would otherwise be refused.
The limit is a raw deque and a call in one thread. The worker pool is shown a second time beside a deque that is handed
to a thread, because changing threads is what it is for.
The targets: 500,000 messages a second on one channel, 2,000,000 over 36.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter_ns

from benchmarks.inprocess_peers import (
    ASYNC_PEERS,
    SYNC_PEERS,
    channel_names,
    deque_and_call,
    deque_and_call_in_thread,
)
from benchmarks.measure import (
    PAYLOAD,
    Options,
    Trial,
    best_of,
    check_delivered,
    counting_async_handler,
    counting_handler,
    turns,
)
from benchmarks.report import Figure, Report
from unibus import MessageBus as AsyncMessageBus
from unibus.sync import MessageBus as SyncMessageBus

MESSAGES = 100_000
WORKERS = 4
TARGETS_NS = {1: 2_000.0, 36: 500.0}
"""Channels → nanoseconds per message."""


def run(options: Options) -> Report:
    figures = [figure for channels in TARGETS_NS for figure in _figures(channels, options)]
    return Report("inprocess", tuple(figures))


def _figures(channels: int, options: Options) -> list[Figure]:
    contenders = {**OURS, **SYNC_PEERS, **ASYNC_PEERS, **LIMITS}
    trials = {name: _on(channels, contender) for name, contender in contenders.items()}
    best = best_of(trials, options.count(MESSAGES), options)
    plural = "" if channels == 1 else "s"
    return [
        Figure(
            figure=f"{name}, {channels} channel{plural}" + ("" if limit == RAW else f", limit {limit}"),
            unit="ns",
            ours=best[name],
            target=TARGETS_NS[channels],
            peers={peer: best[peer] for peer in peers},
            limit=best[limit],
        )
        for name, limit, peers in FIGURES
    ]


def _on(channels: int, contender: Callable[[int, int], float]) -> Trial:
    return lambda count: contender(count, channels)


def ours_inline(count: int, channels: int = 1) -> float:
    return _ours_sync(count, channels, dispatch="inline")


def ours_queued(count: int, channels: int = 1) -> float:
    return _ours_sync(count, channels)


def _ours_sync(count: int, channels: int, **how: str) -> float:
    handler, received = counting_handler()
    names = channel_names(channels)
    bus = SyncMessageBus(worker_count=WORKERS)
    try:
        for name in names:
            bus.create_channel(name, max_queue_size=0)
            bus.subscribe(name, handler, **how)
        publish = bus.publish
        start = perf_counter_ns()
        for name in turns(names, count):
            publish(name, PAYLOAD)
        bus.drain()
        elapsed = perf_counter_ns() - start
    finally:
        bus.close()
    check_delivered(received(), count)
    return elapsed / count


def ours_async(count: int, channels: int = 1) -> float:
    return asyncio.run(_ours_async(count, channels))


async def _ours_async(count: int, channels: int) -> float:
    handler, received = counting_async_handler()
    names = channel_names(channels)
    async with AsyncMessageBus() as bus:
        for name in names:
            bus.create_channel(name, max_queue_size=0)
            bus.subscribe(name, handler)
        publish = bus.publish
        start = perf_counter_ns()
        for name in turns(names, count):
            await publish(name, PAYLOAD)
        await bus.drain()
        elapsed = perf_counter_ns() - start
    check_delivered(received(), count)
    return elapsed / count


OURS: dict[str, Callable[[int, int], float]] = {
    "sync inline": ours_inline,
    "sync queued": ours_queued,
    "async": ours_async,
}
RAW = "deque and call"
THREADED = "deque and call in a thread"
LIMITS: dict[str, Callable[[int, int], float]] = {RAW: deque_and_call, THREADED: deque_and_call_in_thread}
# The pool is shown against both limits: the strict one, and the one that changes threads as it does itself.
FIGURES = (
    ("sync inline", RAW, SYNC_PEERS),
    ("sync queued", RAW, SYNC_PEERS),
    ("sync queued", THREADED, SYNC_PEERS),
    ("async", RAW, ASYNC_PEERS),
)
