"""A message published to a topic with many subscriptions, through the bus: who does not want it may cost little.

Three subscriptions want the message, out of 2,000 or out of 10, so both store the same three copies; the others have
rules of the same kinds, for other customers. The figure is how many times dearer the larger topic is. On SQLite a
message counts at D1: a sync to the disk would hide what is asked for here.

Sent in batches of 100, as the cost of one answer on its way is that of `benchmarks.durable`. The copies are received
and counted outside of the time that is taken.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.disk import scratch
from benchmarks.measure import Options, Trial, best_of, check_delivered
from benchmarks.report import Figure
from unibus.core.filters.filters import CorrelationFilter, Filter, SqlFilter
from unibus.core.lifecycle.state.rules import Rule
from unibus.sync import MessageBus

MANY, FEW = 2_000, 10
TARGET = 5.0
MESSAGES = 2_000
BATCH = 100
ROUNDS_MAX = 5
TOPIC = "orders"
FIELDS: dict[str, object] = {
    "headers": {"color": "red", "price": 20, "customer": "c-7", "region": "north"},
    "correlation_id": "c-1",
}


def figures(options: Options) -> list[Figure]:
    few = Options(min(options.rounds, ROUNDS_MAX), options.quick)
    with scratch() as folder:
        places = {"memory": "memory://{}", "SQLite": f"sqlite:///{folder}/{{}}.db?durability=D1"}
        return [figure for name, place in places.items() for figure in _measured(name, place, few)]


def _measured(name: str, place: str, options: Options) -> list[Figure]:
    with _topic(place.format("many"), MANY) as many, _topic(place.format("few"), FEW) as few:
        best = best_of({"many": _publishing(many), "few": _publishing(few)}, options.count(MESSAGES), options)
    return figures_of(name, best["few"], best["many"])


def figures_of(name: str, few_ns: float, many_ns: float) -> list[Figure]:
    """What a message costs where few are subscribed, and how many times that where many are."""
    return [
        Figure(f"topic of {FEW}, {name}", "ns", few_ns),
        Figure(f"topic of {MANY:,} over {FEW}, {name}", "times", many_ns / few_ns, TARGET),
    ]


def wanted() -> list[Filter]:
    """Those that take the message."""
    return [
        SqlFilter("customer = 'c-7' AND price > 10"),
        CorrelationFilter("c-1"),
        SqlFilter("region IN ('north', 'east')"),
    ]


def others(count: int) -> list[Filter]:
    """Those that do not."""
    made: list[Filter] = []
    for at in range(count):
        kinds: list[Filter] = [
            SqlFilter(f"customer = 'other-{at}' AND price > 10"),
            CorrelationFilter(f"other-{at}"),
            SqlFilter(f"region IN ('r{at}', 's{at}')"),
        ]
        made.append(kinds[at % 3])
    return made


@contextmanager
def _topic(url: str, subscriptions: int) -> Iterator[MessageBus]:
    """A bus with one topic; the subscriptions that want the message are the last ones, named by their number."""
    good = wanted()
    with MessageBus(url) as bus:
        bus.create_topic(TOPIC)
        for at, condition in enumerate([*others(subscriptions - len(good)), *good]):
            bus.create_subscription(TOPIC, f"s{subscriptions - at}", rules=[Rule("r", condition)])
        yield bus


def _publishing(bus: MessageBus) -> Trial:
    def trial(count: int) -> float:
        bodies = [b"x" * 200] * BATCH
        batches = max(1, count // BATCH)
        started = time.perf_counter_ns()
        for _ in range(batches):
            bus.send_many(TOPIC, bodies, **FIELDS)
        elapsed = time.perf_counter_ns() - started
        check_delivered(_taken(bus), batches * BATCH * len(wanted()))
        return elapsed / (batches * BATCH)

    return trial


def _taken(bus: MessageBus) -> int:
    """Everything that the topic stored, wherever it is: received, and counted."""
    found = sum(info.active for info in bus.entities())
    for at in range(1, len(wanted()) + 1):
        while messages := bus.receive_batch(f"{TOPIC}/Subscriptions/s{at}", 1_000, timeout=0):
            bus.complete_many(messages)
    return found
