"""One stage of the demo: its buses, screen and duration, and the result that all stages share."""

import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Unpack

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.pubsub.subscription import Subscription
from unibus.bus.settings import SubscribeOptions
from unibus.cli.demo.demo_store import DemoStore
from unibus.cli.demo.screen import Screen
from unibus.cli.demo.table import DemoWatch

TICK_S: Final = 0.02


class DemoResult:
    """What the demo has shown so far, for the stages after it, the summary and the exit code."""

    def __init__(self) -> None:
        self.kills = 0
        self.acknowledged = 0
        self.found = 0
        self.unanswered = 0
        """Stored, and killed before the answer. A sender that gets no answer sends again: at-least-once."""
        self.traced = ""
        """The id of the message whose trace is shown."""

    @property
    def lost(self) -> int:
        return self.acknowledged - self.found

    def describe(self) -> str:
        return f"acknowledged {self.acknowledged:,}, found {self.found:,}, lost {self.lost:,}"

    def add_kill(self, acknowledged: set[int], stored: set[int]) -> None:
        """After a kill: the numbers of all acknowledged messages, and of all in the store."""
        self.kills += 1
        self.acknowledged = len(acknowledged)
        self.found = len(acknowledged & stored)
        self.unanswered = len(stored - acknowledged)


class Scene(NamedTuple):
    """What all stages share."""

    bus: SyncMessageBus
    store: DemoStore
    screen: Screen
    result: DemoResult
    figures: DemoWatch


class Stage:
    """Subscribes through `subscribe`, so that `close` cancels it, also after Ctrl-C."""

    def __init__(self, scene: Scene, seconds: float) -> None:
        self.bus, self.store, self.screen, self.result, self.figures = scene
        self.seconds = seconds
        self._began_s = time.monotonic()
        self._subscriptions: list[Subscription] = []

    @property
    def passed_s(self) -> float:
        return time.monotonic() - self._began_s

    def subscribe(
        self,
        channel: str,
        handler: Callable[..., object],
        attempts: int = 3,
        delay_s: float = 0.1,
        bus: SyncMessageBus | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> None:
        self._subscriptions.append((bus or self.bus).subscribe(channel, handler, attempts, delay_s, 1, **options))

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

    def settle(self, timeout_s: float | None, bus: SyncMessageBus | None = None) -> None:
        """Drains the bus, in steps so short that the screen is refreshed."""
        until_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while not (bus or self.bus).drain(TICK_S) and time.monotonic() < until_s:
            self.screen.refresh()

    def rest(self) -> None:
        """Leaves time to read the result, until the end of the stage. In a pipe it does not wait."""
        while self.screen.is_live and self.passed_s < self.seconds:
            self.screen.refresh()
            time.sleep(TICK_S)

    def close(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()
