"""The synthetic company of `unibus pipeline generate`: its domains, queues, topics, and how their messages behave.

Everything is computed from the seed. `Habits` are arrays with one value for each entity, so that the lifecycles of a
hundred thousand messages can be generated at once (lifecycles.py): how long a message waits and is processed, how often
that fails and with which error, when a consumer stops for good.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, QUEUE, SUBSCRIPTION, SUBSCRIPTIONS, TOPIC

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
NEVER_US: Final = 1 << 62

SUBSCRIPTIONS_MAX: Final = 4
NOUNS: Final = (
    *("orders", "payments", "invoices", "shipments", "stock", "prices", "returns", "customers", "emails", "carts"),
    *("refunds", "searches", "sessions", "devices", "alarms", "reports", "audit", "exports", "images", "reviews"),
)
VERBS: Final = ("created", "changed", "checked", "settled", "requested", "imported", "indexed", "archived")
LISTENERS: Final = ("billing", "warehouse", "analytics", "mail", "search", "fraud", "partners", "backup")
DOMAINS: Final = ("shop", "warehouse", "billing", "support", "devices", "partners")

REASONS: Final = (
    *(None, "abandoned", "lock_expired", "released", "MaxDeliveryCountExceeded", "TTLExpiredException"),
    *("HandlerRejected", "PayloadMismatch", "NotFound", "closed", "by hand", "session_closed"),
)
"""The values of the column `reason`; a row has the index in this tuple."""

SIGNATURES: Final = (
    *(None, "TimeoutError", "ConnectionError", "ValidationError", "KeyError", "ValueError", "IntegrityError"),
    *("PermissionError", "HTTPStatusError", "JSONDecodeError", "OSError", "RuntimeError", "ZeroDivisionError"),
)


@dataclass(frozen=True)
class WorldPlan:
    """What to generate. `unread` is an additional share of messages that are never received; `prefix` is put before the
    names of domains, for several histories in one lake."""

    messages: int
    domains: int = 3
    channels: int = 50
    hours: float = 24.0
    seed: int = 1
    bodies: bool = False
    start_us: int = 1_767_571_200 * SECOND_US
    unread: float = 0.0
    prefix: str = ""

    @property
    def end_us(self) -> int:
        return self.start_us + int(self.hours * HOUR_US)


@dataclass(eq=False)
class Domain:
    """The entities of one domain. The targets of sends are first: queues and topics; `share` is the load of each."""

    name: str
    end_us: int
    names: list[str] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    listeners: dict[int, list[int]] = field(default_factory=dict)
    consumers: list[str | None] = field(default_factory=lambda: [None])
    share: Floats = field(default_factory=lambda: np.zeros(0))
    habits: "Habits" = field(init=False)

    def add(self, name: str, kind: int) -> int:
        self.names.append(name)
        self.kinds.append(kind)
        self.dead.append(0)
        return len(self.names) - 1


@dataclass(eq=False)
class Habits:
    """By the index of the entity in its domain. Durations are logarithms of medians in microseconds."""

    wait: Floats
    wait_spread: Floats
    work: Floats
    work_spread: Floats
    fails: Floats
    rejects: Floats
    defers: Floats
    hangs: Floats
    delays: Floats
    schedules: Floats
    repeats: Floats
    released_by_lock: Flags
    takes_for_good: Flags
    idempotent: Flags
    by_session: Flags
    keeps_expired: Flags
    lock_us: Ints
    ttl_us: Ints
    stops_us: Ints
    bad_from_us: Ints
    bad_to_us: Ints
    deliveries_max: Ints
    consumer: Ints
    consumers: Ints
    signature: Ints
    size: Floats


def domain_name(plan: WorldPlan, number: int) -> str:
    return plan.prefix + (DOMAINS[number] if number < len(DOMAINS) else f"domain{number}")


def domain_of(plan: WorldPlan, number: int) -> Domain:
    chance = np.random.default_rng([plan.seed, number, 7])
    domain = Domain(domain_name(plan, number), plan.end_us)
    _entities(domain, plan.channels, chance)
    popularity = 1.0 / np.arange(1, plan.channels + 1) ** 1.1  # Zipf: few channels have most of the traffic.
    popularity = popularity[chance.permutation(plan.channels)]
    domain.share = popularity / popularity.sum()
    domain.habits = _habits(domain, plan, chance)
    return domain


def _entities(domain: Domain, channels: int, chance: np.random.Generator) -> None:
    for number in range(channels):
        domain.add(_channel_name(number), TOPIC if number % 5 == 3 else QUEUE)
    for topic in range(channels):
        if domain.kinds[topic] == TOPIC:
            count = int(chance.integers(1, SUBSCRIPTIONS_MAX + 1))
            names = [LISTENERS[(topic + place) % len(LISTENERS)] for place in range(count)]
            path = f"{domain.names[topic]}/{SUBSCRIPTIONS}"
            domain.listeners[topic] = [domain.add(f"{path}/{name}", SUBSCRIPTION) for name in names]
    for place, kind in enumerate(domain.kinds[:]):
        if kind != TOPIC:
            domain.dead[place] = domain.add(sub_queue(domain.names[place]), DEAD_LETTERS)


def _channel_name(number: int) -> str:
    noun, verb = NOUNS[number % len(NOUNS)], VERBS[number // len(NOUNS) % len(VERBS)]
    generation = number // (len(NOUNS) * len(VERBS))
    return f"{noun}.{verb}" if not generation else f"{noun}.{verb}.{generation}"


def _habits(domain: Domain, plan: WorldPlan, chance: np.random.Generator) -> Habits:
    count = len(domain.names)
    kinds = np.array(domain.kinds)
    consumers = chance.integers(1, 7, count)
    first = 1 + np.concatenate(([0], np.cumsum(consumers)[:-1]))
    for name, number in zip(domain.names, consumers, strict=True):
        short = name.rpartition("/")[2] if "/" in name else name.partition(".")[0]
        domain.consumers += [f"{short}-{worker}" for worker in range(1, int(number) + 1)]

    def some(share: float) -> Flags:
        return chance.random(count) < share

    def at_some(share: float, often: float) -> Floats:
        return np.where(some(share), often, 0.0)

    slow, by_lock = some(0.08), some(0.3)
    lock = chance.choice(np.array([10, 30, 60, 300]) * SECOND_US, count)
    # A handful hang for good while the bus renews their lock: few, as each is renewed until the end.
    hangs = np.where((lock == 300 * SECOND_US) & ~by_lock, min(1 / 1_000, 20 / plan.messages), 0.0)
    wait = np.log(chance.lognormal(np.log(40_000), 1.2, count)) + slow * 4.0
    work = np.log(chance.lognormal(np.log(15_000), 1.3, count)) + slow * 3.0
    by_session = some(0.1) & (kinds == QUEUE)
    length = plan.end_us - plan.start_us
    bad_from = plan.start_us + (chance.random(count) * 0.9 * length).astype(np.int64)
    return Habits(
        wait=wait,
        wait_spread=chance.uniform(0.6, 1.4, count),
        work=work,
        work_spread=chance.uniform(0.4, 1.1, count),
        fails=np.clip(chance.lognormal(np.log(0.02), 1.0, count), 0.001, 0.4),
        rejects=np.clip(chance.lognormal(np.log(0.002), 1.0, count), 0.0, 0.05),
        defers=at_some(0.15, 0.02),
        hangs=hangs,
        delays=at_some(0.6, 0.8),
        schedules=at_some(0.2, 0.1),
        repeats=at_some(0.25, 0.02),
        released_by_lock=by_lock,
        takes_for_good=some(0.06) & (kinds != DEAD_LETTERS) & ~by_session,
        idempotent=some(0.15),
        by_session=by_session,
        keeps_expired=some(0.5),
        lock_us=lock,
        ttl_us=np.where(some(0.15), (np.exp(wait) * 12).astype(np.int64), NEVER_US),
        stops_us=np.where(some(0.03), plan.start_us + (chance.random(count) * length).astype(np.int64), NEVER_US),
        bad_from_us=bad_from,
        bad_to_us=bad_from + (chance.uniform(0.005, 0.03, count) * length * some(0.4)).astype(np.int64),
        deliveries_max=chance.choice(np.array([3, 5, 10]), count),
        consumer=first,
        consumers=consumers,
        signature=chance.integers(1, len(SIGNATURES), count),
        size=np.log(chance.lognormal(np.log(600), 0.9, count)),
    )


def times_of_day(plan: WorldPlan) -> tuple[Floats, Floats]:
    """The share of all traffic up to a time, and these times: busy afternoons, quiet nights, some bursts."""
    chance = np.random.default_rng([plan.seed, 11])
    edges = np.linspace(plan.start_us, plan.end_us, max(2, int(plan.hours * 60)) + 1)
    hour = (edges[:-1] / HOUR_US) % 24
    load = 0.25 + np.exp(-((hour - 14.5) ** 2) / 18) + 0.5 * np.exp(-((hour - 9.5) ** 2) / 4)
    load *= chance.lognormal(0, 0.15, len(load)) * np.where(chance.random(len(load)) < 0.01, 3.0, 1.0)
    shares = np.concatenate(([0.0], np.cumsum(load)))
    return shares / shares[-1], edges
