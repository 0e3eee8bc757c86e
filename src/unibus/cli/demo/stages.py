"""The stages of the demo, in their order: in memory first, then on a store."""

from collections.abc import Callable
from typing import Final, NamedTuple

from unibus.cli.demo.in_memory import burst, fan_out, priorities
from unibus.cli.demo.kills import kills
from unibus.cli.demo.recovery import dead_letters, redrive, sql
from unibus.cli.demo.stage import Stage


class Chapter(NamedTuple):
    """A stage before it runs. `share` is its part of the duration, relative to the other stages."""

    title: str
    text: str
    run: Callable[[Stage], None]
    share: float


STAGES: Final = (
    Chapter("fan-out", "Three consumer groups on one channel: each gets every message.", fan_out, 0.5),
    Chapter("priorities", "A slow handler builds up a backlog. Urgent messages overtake it.", priorities, 0.75),
    Chapter("throughput", "As fast as one thread can publish.", burst, 0.75),
    Chapter("kill -9", "A process that sends is killed. Is each acknowledged message stored?", kills, 1.5),
    Chapter("trace", "The bank is down: payments fail, are retried and dead-lettered.", dead_letters, 1.5),
    Chapter("redrive", "The bank is up again: what it did not answer returns to its queue.", redrive, 1.0),
    Chapter("SQL", "One query language for messages, dead-lettered messages and history.", sql, 1.0),
)
