"""Messages a second through a queue that survives a crash: sent and settled means synced to the disk.

200-byte bodies; ours is the public API on SQLite with its default, D2. Sent one by one by 256 tasks at once, sent in
batches of 100, received and completed in batches of 100; "busy" is the same beside a thread that never waits.
Fair, because all contenders make the same promise, do the same work (`benchmarks.durable_load`), each on a fresh file
of the same disk, and take turns; the best round counts, beside the busy thread the middle one. A phase lasts until
its messages or 0.4 s are used up. The limit is SQLite by itself, a row per message in groups of 100; who writes a
group as one row, or finds larger groups, can pass it. The memory store goes through the same phases and shows what
durability costs; it has no peers here. "publish → handler" is a persistent channel with a handler of that concurrency
(`benchmarks.durable_channel`); peers and the limit have no handlers, so theirs is the time of a send, one by one, and
of a receive, together. Everybody starts with Python's own switch interval; a store of ours shortens
it, which is part of what a user gets, and the limit is given the same.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from functools import partial
from statistics import median

from benchmarks import durable_channel
from benchmarks.disk import scratch
from benchmarks.durable_bus import Ours
from benchmarks.durable_load import BATCH, TASKS, Opened, Rates, busy_thread, measured
from benchmarks.durable_peers import LIMIT, PEERS
from benchmarks.measure import Options, rounds_of
from benchmarks.report import Figure, Report

MESSAGES = 20_000
ROUNDS_MAX = 5
"""A round of all contenders takes seconds, as the slow ones are given their time too."""

OPERATIONS = {
    "send_each": f"send, {TASKS} tasks",
    "send_batches": f"send, by {BATCH}",
    "receive": f"receive and complete, by {BATCH}",
}

Beside = Callable[[], AbstractContextManager[object]]
Choice = Callable[[list[float]], float]
BESIDE: dict[str, tuple[Beside, Choice]] = {
    "": (nullcontext, max),
    # Not the best round here: whether the kernel puts both threads on one core or on two makes a contender up to ten
    # times faster or slower, so chance goes both ways, and the best would only tell who was lucky.
    ", busy": (busy_thread, median),
}
"""What goes on beside the work → how, and which of the rounds counts."""


SQLITE, MEMORY = "ours", "memory"
CONTENDERS: dict[str, Opened] = {SQLITE: Ours.on_sqlite, MEMORY: Ours.in_memory, **PEERS, "limit": LIMIT}


def run(options: Options) -> Report:
    few = Options(min(options.rounds, ROUNDS_MAX), options.quick)
    found = {where: _measured(*beside, few) for where, beside in BESIDE.items()}
    figures = [
        figure(operation, rates, f"{name}{where}")
        for where, rates in found.items()
        for operation, name in OPERATIONS.items()
    ]
    figures += [
        Figure(f"memory, {name}{where}", "msg/s", getattr(rates[MEMORY], operation))
        for where, rates in found.items()
        for operation, name in OPERATIONS.items()
    ]
    handled = durable_channel.rates(few.count(MESSAGES), few)
    figures += [handled_figure(concurrency, rate, found[""]) for concurrency, rate in handled.items()]
    return Report("durable", tuple(figures))


def figure(operation: str, rates: dict[str, Rates], name: str) -> Figure:
    found = {contender: getattr(rate, operation) for contender, rate in rates.items()}
    return Figure(name, "msg/s", found[SQLITE], peers={peer: found[peer] for peer in PEERS}, limit=found["limit"])


def handled_figure(concurrency: int, ours: float, rates: dict[str, Rates]) -> Figure:
    others = {name: durable_channel.one_after_the_other(rates[name]) for name in (*PEERS, "limit")}
    limit = others.pop("limit")
    return Figure(f"publish → handler, concurrency {concurrency}", "msg/s", ours, peers=others, limit=limit)


def _measured(beside: Beside, choice: Choice, options: Options) -> dict[str, Rates]:
    trials = {name: partial(trial, opened, beside) for name, opened in CONTENDERS.items()}
    # A fresh file for each round: there is nothing that a warm-up could leave behind.
    rounds = rounds_of(trials, options.count(MESSAGES), options, warm_up=False)
    return {name: chosen(choice, results) for name, results in rounds.items()}


def trial(opened: Opened, beside: Beside, count: int) -> Rates:
    with scratch() as folder:
        return asyncio.run(measured(opened, folder, count, beside()))


def chosen(choice: Choice, rounds: list[Rates]) -> Rates:
    """For every operation by itself, so the three need not be of the same round."""
    return Rates(**{field.name: choice([getattr(found, field.name) for found in rounds]) for field in fields(Rates)})
