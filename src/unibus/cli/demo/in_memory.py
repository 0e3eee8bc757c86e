"""The stages of the demo in memory: fan-out, priorities and throughput."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal

from unibus.cli.demo.stage import Stage
from unibus.cli.demo.table import shown
from unibus.core import COMPILED
from unibus.core.envelope.message import Message
from unibus.core.envelope.priority import Priority

BURST: Final = 20_000 if COMPILED else 2_000
"""Messages between two readings of the clock: a few hundredths of a second."""


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
    stage.screen.note(f"{sent:,} orders; " + ", ".join(f"{name} got {n:,}" for name, n in got.items()))


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


def burst(stage: Stage) -> None:
    through_a_worker = _messages_a_second(stage, "burst", "pool")
    inline = _messages_a_second(stage, "burst.inline", "inline")
    stage.screen.note(f"{through_a_worker:,.0f} messages per second to a handler on a worker thread")
    stage.screen.note(f"{inline:,.0f} messages per second to a handler in the publisher's thread")


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
