"""Cost of one delivery when one publish goes to 10, 100, 1,000 and 10,000 subscribers.

Fair, because every contender has as many different handler functions and makes about as many deliveries in a
round whatever the number of subscribers, and subscribing is not timed. The limit is a loop over a list of the
same functions. The last figure of each kind divides the cost at 10,000 by that at 10: it shows whether the cost of
a delivery grows. That of the limit is not 1 either, because 10,000 functions do not fit the processor's nearest
cache; and a peer whose publish is dear by itself shows a low one, because at 10 few deliveries share that price.
"""

from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter_ns

import blinker
from pyee.base import EventEmitter

from benchmarks.measure import PAYLOAD, Options, Trial, best_of, check_delivered, counting_handlers
from benchmarks.report import Figure, Report
from unibus.sync import MessageBus

SIZES = (10, 100, 1_000, 10_000)
DELIVERIES = 200_000

PublishMany = Callable[[int], None]
"""Publishes so many times, and returns when everything has been handled."""


def run(options: Options) -> Report:
    best = {size: _best_at(size, options) for size in SIZES}
    figures = [_figure(f"{kind}, {size:,} subscribers", "ns", kind, best[size]) for kind in OURS for size in SIZES]
    growth = {name: best[SIZES[-1]][name] / best[SIZES[0]][name] for name in best[SIZES[0]]}
    figures += [
        _figure(f"{kind}, cost at {SIZES[-1]:,} over cost at {SIZES[0]}", "times", kind, growth) for kind in OURS
    ]
    return Report("fanout", tuple(figures))


def _figure(figure: str, unit: str, kind: str, values: dict[str, float]) -> Figure:
    peers = {name: values[name] for name in PEERS}
    return Figure(figure, unit, values[kind], peers=peers, limit=values["limit"])


def _best_at(size: int, options: Options) -> dict[str, float]:
    with ExitStack() as closing:
        trials = {name: _trial(size, make, closing) for name, make in CONTENDERS.items()}
        return best_of(trials, options.count(DELIVERIES), options)


def _trial(size: int, make: "Contender", closing: ExitStack) -> Trial:
    handlers, received = counting_handlers(size)
    publish_many = make(handlers, closing)

    def trial(deliveries: int) -> float:
        publishes = max(1, deliveries // size)
        before = received()
        start = perf_counter_ns()
        publish_many(publishes)
        elapsed = perf_counter_ns() - start
        check_delivered(received() - before, publishes * size)
        return elapsed / (publishes * size)

    return trial


Contender = Callable[[list[Callable[[object], None]], ExitStack], PublishMany]


def ours_inline(handlers: list[Callable[[object], None]], closing: ExitStack) -> PublishMany:
    return _ours(handlers, closing, dispatch="inline")


def ours_queued(handlers: list[Callable[[object], None]], closing: ExitStack) -> PublishMany:
    return _ours(handlers, closing)


def _ours(handlers: list[Callable[[object], None]], closing: ExitStack, **how: str) -> PublishMany:
    bus = MessageBus(worker_count=4)
    closing.callback(bus.close)
    bus.create_channel("c", max_queue_size=0)
    for number, handler in enumerate(handlers):
        # Made by one factory, the handlers share a qualified name; a group of its own gives each every message.
        bus.subscribe("c", handler, group=f"g{number}", **how)

    def publish_many(publishes: int) -> None:
        for _ in range(publishes):
            bus.publish("c", PAYLOAD)
        bus.drain()

    return publish_many


def pyee_emit(handlers: list[Callable[[object], None]], closing: ExitStack) -> PublishMany:
    emitter = EventEmitter()
    for handler in handlers:
        emitter.on("c", handler)

    def publish_many(publishes: int) -> None:
        for _ in range(publishes):
            emitter.emit("c", PAYLOAD)

    return publish_many


def blinker_send(handlers: list[Callable[[object], None]], closing: ExitStack) -> PublishMany:
    signal = blinker.Signal()
    for handler in handlers:
        signal.connect(handler, weak=False)

    def publish_many(publishes: int) -> None:
        for _ in range(publishes):
            signal.send(PAYLOAD)

    return publish_many


def loop_over_list(handlers: list[Callable[[object], None]], closing: ExitStack) -> PublishMany:
    def publish_many(publishes: int) -> None:
        for _ in range(publishes):
            for handler in handlers:
                handler(PAYLOAD)

    return publish_many


OURS: dict[str, Contender] = {"inline": ours_inline, "queued": ours_queued}
PEERS: dict[str, Contender] = {"pyee": pyee_emit, "blinker": blinker_send}
CONTENDERS: dict[str, Contender] = {**OURS, **PEERS, "limit": loop_over_list}
