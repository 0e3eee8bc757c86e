"""The stages of the demo: each one shows one feature with a few lines of the public API.

A stage has a bus, a screen and a duration. It subscribes through its `Stage`, which cancels the subscriptions at the
end, also after Ctrl-C.
"""

import itertools
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple, Unpack

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.build_kind import build_hint, describe_build
from unibus.bus.pubsub.subscription import Subscription
from unibus.bus.settings import SubscribeOptions
from unibus.cli.demo.screen import Screen
from unibus.cli.demo.table import shown
from unibus.core import COMPILED
from unibus.core.envelope.message import Message
from unibus.core.envelope.priority import Priority
from unibus.core.flow.deadletter import ATTEMPTS_HEADER, DESCRIPTION_HEADER, REASON_HEADER
from unibus.counting import counted
from unibus.errors import RateLimited

TICK_S: Final = 0.02
BURST: Final = 20_000 if COMPILED else 2_000
"""Messages between two readings of the clock: a few hundredths of a second."""


class Stage:
    """One stage on the bus. `pace` says how many messages to publish, and when."""

    def __init__(self, bus: SyncMessageBus, screen: Screen, seconds: float) -> None:
        self.bus = bus
        self.screen = screen
        self.seconds = seconds
        self._subscriptions: list[Subscription] = []

    def subscribe(
        self,
        channel: str,
        handler: Callable[..., object],
        attempts: int = 3,
        delay_s: float = 0.1,
        **options: Unpack[SubscribeOptions],
    ) -> None:
        self._subscriptions.append(self.bus.subscribe(channel, handler, attempts, delay_s, 1, **options))

    def pace(self, per_second: float, share: float = 1.0) -> Iterator[int]:
        """Yields how many messages to publish at each tick, at least one in all, for that share of the duration."""
        began_s = time.monotonic()
        sent = 0
        while (passed_s := time.monotonic() - began_s) < self.seconds * share or not sent:
            due = int(passed_s * per_second) + 1 - sent
            sent += due
            yield due
            self.screen.refresh()
            time.sleep(TICK_S)

    def settle(self, timeout_s: float) -> None:
        """Drains the bus, in steps so short that the screen is refreshed."""
        until_s = time.monotonic() + timeout_s
        while not self.bus.drain(TICK_S) and time.monotonic() < until_s:
            self.screen.refresh()

    def close(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()


def fan_out(stage: Stage) -> None:
    got: Counter[str] = Counter()
    for group in ("billing", "shipping", "audit"):
        stage.subscribe("orders", _counting(got, group), group=group)
    sent = 0
    for due in stage.pace(1_000):
        for _ in range(due):
            sent += 1
            stage.bus.publish("orders", {"id": sent})
    stage.settle(1.0)
    stage.screen.note(f"{sent:,} orders published; " + ", ".join(f"{name} got {n:,}" for name, n in got.items()))


def priorities(stage: Stage) -> None:
    """A handler that is slower than the publisher: how long do messages of each priority wait?"""
    levels = {Priority.BACKGROUND: "background", Priority.NORMAL: "normal", Priority.CRITICAL: "critical"}
    waits_us: dict[int, list[float]] = {level: [] for level in levels}

    def work(message: Message) -> None:
        waits_us[message.priority].append((time.time_ns() - message.timestamp_ns) / 1_000)
        time.sleep(0.002)

    stage.bus.create_channel("alerts", max_queue_size=0)
    stage.subscribe("alerts", work)
    turn = itertools.cycle(levels)
    for due in stage.pace(600, share=0.6):
        for _ in range(due):
            stage.bus.publish("alerts", "look here", priority=next(turn))
    stage.settle(stage.seconds * 0.4)
    stage.close()
    means = {name: _mean(waits_us[level]) for level, name in levels.items()}
    stage.screen.note("mean wait: " + ", ".join(f"{name} {shown(us)}" for name, us in means.items()))


def retries(stage: Stage) -> None:
    def charge(message: Message) -> None:
        number = message.body
        assert isinstance(number, int)
        if number % 40 == 1:
            raise RuntimeError(f"card {number} declined")
        if number % 8 == 1 and message.delivery_count == 1:
            raise RuntimeError("bank did not answer")

    stage.subscribe("payments", charge, 2, 0.02, group="charge")
    numbers = itertools.count(1)
    for due in stage.pace(250):
        for _ in range(due):
            stage.bus.publish("payments", next(numbers))
    stage.settle(1.0)
    figures = stage.bus.snapshot("payments").channels[0]
    retries, dead = (
        counted(figures.retried, "retry", "retries"),
        counted(figures.dead_lettered, "dead-lettered message"),
    )
    stage.screen.note(f"{counted(figures.published, 'payment')}, {retries}, {dead}")
    for message in stage.bus.dead_letters("payments")[-1:]:
        why = message.headers
        text = f"{why[REASON_HEADER]!s} after {why[ATTEMPTS_HEADER]!s} attempts: {why[DESCRIPTION_HEADER]!s}"
        stage.screen.note(f"the last of them: {text}")


def rate_limit(stage: Stage) -> None:
    stage.bus.create_channel("sms", rate_limit_per_sec=100, rate_limit_burst=10)
    stage.subscribe("sms", _counting(Counter(), "phone"), group="phone")
    sent, refused, hint = 0, 0, ""
    for due in stage.pace(1_000):
        for _ in range(due):
            try:
                stage.bus.publish("sms", "hello")
                sent += 1
            except RateLimited as error:
                refused += 1
                hint = str(error)
    stage.screen.note(f"{sent:,} accepted, {refused:,} refused with RateLimited" + (f": {hint}" if hint else ""))


def wildcards(stage: Stage) -> None:
    got: Counter[str] = Counter()
    for pattern in ("home.*.heat", "home.attic.>", "home.#"):
        stage.subscribe(pattern, _counting(got, pattern), group=pattern)
    names = itertools.cycle(("home.attic.heat", "home.attic.damp", "home.cellar.heat"))
    sent = 0
    for due in stage.pace(900):
        for _ in range(due):
            stage.bus.publish(next(names), 20.5)
            sent += 1
    stage.settle(1.0)
    stage.screen.note(f"{sent:,} readings; " + ", ".join(f"{pattern} got {n:,}" for pattern, n in got.items()))


def request_reply(stage: Stage) -> None:
    def quote(body: int, message: Message) -> int:
        return body * 3

    stage.subscribe("quotes", quote, group="prices")
    times_us: list[float] = []
    answer: object = None
    number = 0
    for due in stage.pace(200):
        for number in range(1, due + 1):
            began_ns = time.perf_counter_ns()
            answer = stage.bus.request("quotes", number)
            times_us.append((time.perf_counter_ns() - began_ns) / 1_000)
    stage.screen.note(
        f"{len(times_us):,} requests, {shown(_mean(times_us))} mean round trip; the last: {number} → {answer}"
    )


def burst(stage: Stage) -> None:
    through_a_worker = _messages_a_second(stage, "burst", "pool")
    inline = _messages_a_second(stage, "burst.inline", "inline")
    stage.screen.note(f"{through_a_worker:,.0f} messages per second to a handler on a worker thread")
    stage.screen.note(f"{inline:,.0f} messages per second to a handler in the publisher's thread")
    stage.screen.note(f"unibus is {describe_build()}; this is Python {platform.python_version()}")
    if not COMPILED:
        stage.screen.note(build_hint() or "`pip install .` compiles it, and makes it about ten times as fast")


def _messages_a_second(stage: Stage, channel: str, dispatch: Literal["pool", "inline"]) -> float:
    """Publishes as fast as one thread can for half of the stage. The measured time includes handling all messages."""
    stage.bus.create_channel(channel, max_queue_size=0)
    stage.subscribe(channel, _ignore, dispatch=dispatch)
    publish = stage.bus.publish
    spent_ns, sent = 0, 0
    while spent_ns < stage.seconds / 2 * 1e9:
        began_ns = time.perf_counter_ns()
        for _ in range(BURST):
            publish(channel, "now")
        stage.bus.drain()
        spent_ns += time.perf_counter_ns() - began_ns
        sent += BURST
        stage.screen.refresh()
    return sent / spent_ns * 1e9


def _ignore(message: Message) -> None:
    return None


def _counting(got: Counter[str], name: str) -> Callable[[Message], None]:
    def count(message: Message) -> None:
        got[name] += 1

    return count


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


class Chapter(NamedTuple):
    title: str
    text: str
    run: Callable[[Stage], None]
    share: float


STAGES: Final = (
    Chapter("fan-out", "Three consumer groups subscribe to one channel; each gets every message.", fan_out, 1.0),
    Chapter("priorities", "A slow handler builds up a backlog. Urgent messages overtake it.", priorities, 1.5),
    Chapter("retries and dead-lettering", "Some payments fail once, some always. None is lost.", retries, 1.0),
    Chapter(
        "rate limit", "The channel accepts 100 per second; the publisher tries ten times as many.", rate_limit, 0.75
    ),
    Chapter("wildcards", "Subscriptions to patterns of names: one token, a tail, everything.", wildcards, 1.0),
    Chapter("request and reply", "The caller gets the value that the handler returns.", request_reply, 0.75),
    Chapter("burst", "As fast as one thread can publish.", burst, 1.0),
)
