"""What has to end when a bus closes, in order: the steps that `Closing` runs.

    refuse ▶ feeds ▶ drain ▶ slots ▶ timers ▶ workers ▶ loop ▶ outboxes ▶ store ▶ capture

First nothing new comes in, then what is on its way is handled, then whatever could still write ends, and only after
that the store: a settlement that comes later is refused, and its message is redelivered. The capture is last, because
it reads what the store wrote.

Each step may run twice: a caller that ran it itself may have been interrupted in the middle.
"""

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Final

from unibus.bus.execution.executors import HandlerExecutors
from unibus.bus.execution.outcomes import BusDeliveryOutcomes
from unibus.bus.persistent.channels import DurableChannels
from unibus.bus.pubsub.delivery import SlotRunner
from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.pubsub.group import Group
from unibus.bus.pubsub.registry import Registry
from unibus.bus.shutdown.closing import Closing, ClosingStep
from unibus.bus.shutdown.unhandled import CLOSED, Unhandled
from unibus.bus.subscriptions.drain import LEAST_S, Drain
from unibus.bus.timers import ThreadTimers, Timers
from unibus.capture.child import CaptureChild
from unibus.core.atomic import LOCK
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.store import Store
from unibus.threads import Join

if TYPE_CHECKING:
    from unibus.bus.outbox.registry import Outboxes

log = logging.getLogger("unibus")

END_S: Final = 5.0
"""How long the rest may take after a block was left and everything was handled: a relay, a capture."""


class Shutdown:
    """The parts of one bus that have to end. Those of its store are set when it gets one."""

    def __init__(
        self,
        exchange: Exchange,
        registry: Registry,
        outcomes: BusDeliveryOutcomes,
        delivery: SlotRunner,
        executors: HandlerExecutors,
        timers: Timers,
        drain: Drain,
    ) -> None:
        self.draining = False  # New messages are refused, but for those of the bus's own handlers.
        self.is_left = False  # A block was left in order: handlers are waited for as long as they take.
        self.is_exit = False  # The program ends: what can still be handled was waited for already.
        self.end = CLOSED  # How it came to this, for the report of what is lost.
        self.join: Join = threading.Thread.join
        self.store: Store | None = None
        self.durable: DurableChannels | None = None
        self.outboxes: Outboxes | None = None
        self.capture: CaptureChild | None = None
        self._exchange = exchange
        self._registry = registry
        self._outcomes = outcomes
        self._delivery = delivery
        self._executors = executors
        self._timers = timers
        self._drain_wait = drain
        self._unhandled = Unhandled(exchange, registry, delivery, executors, outcomes.retries, lambda: self.closing)
        self.closing = Closing(
            [
                ClosingStep("subscriptions", self._stop_feeds),
                ClosingStep("running handlers", self._drain),
                ClosingStep("async handlers", self._end_slots),
                ClosingStep("timers", self._stop_timers),
                ClosingStep("worker threads", self._end_workers),
                ClosingStep("the event loop", self._end_loop),
                ClosingStep("the relay of outboxes", self._close_outboxes),
                ClosingStep("the store", self._close_store),
                ClosingStep("the capture", self._end_capture),
                ClosingStep("callers of drain()", drain.end),
            ],
            self.refuse,
        )

    def refuse(self) -> None:
        """Take no new messages from now on, but those that our own handlers publish."""
        with LOCK:
            if not self._exchange.closed:
                self.draining = True  # First: code that finds the bus closed reads this.
                self._exchange.closed = True

    @property
    def url(self) -> str:
        return "memory://" if self.store is None else self.store.url

    def is_stopped(self) -> bool:
        """Whether nothing is handed over: `stop()` was called, and messages wait for a start."""
        return self._delivery.paused

    # What is on its way

    def wait_for_handlers(self, timeout_s: float | None) -> bool:
        """Wait until whatever can still be handled was. Handlers on a loop that does not run are not waited for."""
        return self._drain_wait.wait(timeout_s, lambda: not self.busy_groups())

    def busy_groups(self) -> list[Group]:
        """Those with messages that can still be handled."""
        return [group for group in self._registry.groups() if not group.is_idle() and self._executors.can_run(group)]

    def stored_of(self, groups: list[Group]) -> int:
        """How many messages these groups have at hand that a durable store delivers again."""
        if self.durable is None or self.store is None or self.store.durability == Durability.D0:
            return 0
        stored = [group for group, _ in self.durable.groups_here()]
        return sum(sum(group.counts()) for group in groups if group in stored)

    # The steps

    def _stop_feeds(self) -> None:
        if self.durable is not None:
            if self._handles_stored():
                self.durable.refuse_blocked()
            else:
                self.durable.stop()
        for channel in list(self._exchange.channels.values()):
            # Publishers that wait for room look again, and find the bus closed.
            channel.blocked.wake_all()

    def _drain(self) -> None:
        closing = self.closing
        if not self.is_exit:
            self._outcomes.watch(closing.wake)
            try:
                self._unhandled.wait()
            finally:
                self._outcomes.unwatch(closing.wake)
        if self.durable is not None:
            self.durable.stop()
        if self.is_left:
            closing.shorten(END_S)

    def _handles_stored(self) -> bool:
        """Whether persistent channels are drained, too: a store in memory loses what is not handled."""
        in_memory = self.store is not None and self.store.durability == Durability.D0
        return in_memory and not self.is_stopped() and self._is_waited_for()

    def _end_slots(self) -> None:
        """Hand over nothing more, and cancel what async handlers are doing."""
        closing = self.closing
        self.draining = False
        self._delivery.paused = True
        ended: set[asyncio.AbstractEventLoop] = set()

        def note(loop: asyncio.AbstractEventLoop) -> None:
            ended.add(loop)
            closing.wake()

        told = self._executors.end_all_slots(closing.callers.slots(), note)
        # A loop that stands still ends nothing: not that of a caller that blocks it, and not one that does not run.
        closing.wait_for(
            lambda: all(loop in ended or closing.callers.is_blocked(loop) or not loop.is_running() for loop in told),
            self._patience_s(),
        )

    def _stop_timers(self) -> None:
        self._timers.stop()
        if isinstance(self._timers, ThreadTimers):
            self._timers.join(self._left_s(), self._join)

    def _end_workers(self) -> None:
        ended = self._executors.pause(self._left_s(), self.closing.callers.threads())
        if not ended and self._is_waited_for():
            log.warning("a handler was still busy when the bus closed; its thread was left behind")

    def _end_loop(self) -> None:
        self._executors.end_loop(self._left_s(), self.closing.callers.slots(), self.closing.callers.threads())
        self._unhandled.report(self.store, self.durable, self.end)

    def _close_outboxes(self) -> None:
        """What is committed in outboxes comes into the store first, as long as there is time."""
        if self.outboxes is not None:
            self.outboxes.close(self.closing.left_s(), self._join)

    def _close_store(self) -> None:
        if self.store is not None:
            self.store.close()

    def _end_capture(self) -> None:
        capture = self.capture
        if capture is not None:
            capture.end(self.closing.left_s(), self._join)
            self.capture = None

    def _join(self, thread: threading.Thread, timeout_s: float | None) -> None:
        """Wait for a thread to end, unless it waits for us: a callback in it has called `close()`."""
        if thread not in self.closing.callers.threads():
            self.join(thread, timeout_s)

    def _is_waited_for(self) -> bool:
        """Whether a caller of `close()` expects what was published to be handled."""
        return not self.closing.is_released and not self.is_exit

    def _patience_s(self) -> float:
        """How long what was told to end is waited for; at the end of the program that is not worth much time."""
        return LEAST_S if self.is_exit else float("inf")

    def _left_s(self) -> float | None:
        left_s = self.closing.left_s()
        return left_s if left_s is None else min(left_s, self._patience_s())
