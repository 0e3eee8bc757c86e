"""From loads to figures: rates, processor time, percentiles, the targets, and our own bars."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from benchmarks.http_operations import OPERATIONS, SEND, SUBSCRIPTIONS
from benchmarks.http_requests import BATCH
from benchmarks.report import Figure
from benchmarks.wrk import Load

OURS, FASTAPI, BARE, IN_PROCESS = "ours", "FastAPI route", "bare ASGI", "in process"
ON_LOOP, WITH_REQUEST_LOG, WITH_ENTITIES = "commits on the loop", "with request log", "10,000 entities"
VARIANTS = (ON_LOOP, WITH_REQUEST_LOG, WITH_ENTITIES)

Key = tuple[str, int, str]
"""Operation, connections, contender."""

Found = Mapping[Key, Load]

MANY, ONE = 32, 1
SEND_BATCHES = f"send, by {BATCH}"
RATE_TARGETS = {
    "send": 10_000.0,
    SEND_BATCHES: 10_000.0,
    "receive": 10_000.0,
    f"receive, by {BATCH}": 10_000.0,
    f"send to {SUBSCRIPTIONS} subscriptions": 5_000.0,
    "send in sessions": 5_000.0,
    "receive in sessions": 5_000.0,
}
"""Messages a second, at many connections."""

LATENCY_TARGETS = {
    "send": (500.0, 1_000.0, 5_000.0),
    "receive": (1_000.0, 2_000.0, 10_000.0),
    "complete": (500.0, 1_000.0, 5_000.0),
}
"""Microseconds at p50, p95 and p99, at one connection as a difference to the limit."""

PERCENTILES = ("p50", "p95", "p99")
LEAST_US = 1.0
"""A difference below what wrk can tell."""

FASTAPI_SHARE_MIN, BARE_SHARE_MIN, BATCH_SHARE_MIN = 1.0, 0.3, 0.5


def figures_of(loads: Found, connections: Sequence[int]) -> list[Figure]:
    found: list[Figure] = []
    for operation in OPERATIONS:
        for number in connections:
            at = {
                name: load
                for name in (OURS, FASTAPI, BARE, IN_PROCESS)
                if (load := loads.get((operation.name, number, name))) is not None
            }
            figure = f"{operation.name}, {_connections(number)}"
            target = RATE_TARGETS.get(operation.name) if number > ONE else None
            found.append(_figure(figure, "msg/s", at, lambda load, size=operation.messages: size * load.rate, target))
            found.append(_figure(f"{figure}, processor time", "µs", at, attrgetter("cpu")))
            found += [_figure(f"{figure}, {part}", "µs", at, attrgetter(part)) for part in PERCENTILES]
    return found + _latencies(loads)


def _figure(
    figure: str, unit: str, at: Mapping[str, Load], of: Callable[[Load], float], target: float | None = None
) -> Figure:
    peers = {name: of(load) for name, load in at.items() if name not in (OURS, BARE)}
    return Figure(figure, unit, of(at[OURS]), target, peers, of(at[BARE]))


def _latencies(loads: Found) -> list[Figure]:
    return [
        Figure(
            f"{name}, {_connections(ONE)}, {part} above the limit",
            "µs",
            max(LEAST_US, getattr(loads[name, ONE, OURS], part) - getattr(loads[name, ONE, BARE], part)),
            target,
        )
        for name, targets in LATENCY_TARGETS.items()
        for part, target in zip(PERCENTILES, targets, strict=True)
    ]


def variants(loads: Found, connections: Sequence[int]) -> list[Figure]:
    """The same send otherwise: where commits are made, what is logged, how many entities there are."""
    found: list[Figure] = []
    for variant in VARIANTS:
        for number in connections:
            usual, other = (loads[SEND.name, number, name] for name in (OURS, variant))
            figure = f"send, {variant}, {_connections(number)}"
            found.append(Figure(figure, "msg/s", other.rate, None, {"as it is": usual.rate}))
            found.append(Figure(f"{figure}, processor time", "µs", other.cpu, None, {"as it is": usual.cpu}))
    return found


def bars(loads: Found) -> list[Figure]:
    """Each as a share of what it is measured against, which has to be reached."""
    ours, fastapi, bare = (loads[SEND.name, MANY, each] for each in (OURS, FASTAPI, BARE))
    batches, calls = (loads[SEND_BATCHES, MANY, name] for name in (OURS, IN_PROCESS))
    return [
        Figure(f"bar: send of the {FASTAPI}", "share", ours.rate / fastapi.rate, FASTAPI_SHARE_MIN),
        Figure(f"bar: send of {BARE}", "share", ours.rate / bare.rate, BARE_SHARE_MIN),
        Figure(f"bar: p50 of the {FASTAPI} by ours", "share", fastapi.p50 / ours.p50, FASTAPI_SHARE_MIN),
        Figure(f"bar: batches of {BATCH} of send_many", "share", batches.rate / calls.rate, BATCH_SHARE_MIN),
    ]


def _connections(number: int) -> str:
    return f"{number} connection" + ("s" if number > 1 else "")
