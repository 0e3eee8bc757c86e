"""The steps of closing a bus, in order; `Closing` runs them.

    refuse ▶ pumps ▶ drain ▶ slots ▶ timers ▶ workers ▶ loop ▶ outboxes ▶ store ▶ capture ▶ callers of drain()

The order: first no new message is accepted, then the messages in-flight are handled, then everything ends that could
still write, and only then the store is closed. A settlement that comes later is rejected, and its message is
redelivered after the next start. The capture is last, because it reads what the store wrote.

Each step is idempotent: it runs again if the caller that ran it was interrupted in the middle.
"""

import asyncio
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
from unibus.bus.shutdown.unhandled import CLOSED, Unhandled, described, report_unsettled
from unibus.bus.subscriptions.drain import LEAST_S, Drain
from unibus.bus.timers import ThreadTimers, Timers
from unibus.capture.child import CaptureChild
from unibus.core.atomic import LOCK
from unibus.safe_log import SafeLogger
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.store import Store
from unibus.threads import Join

if TYPE_CHECKING:
    from unibus.bus.outbox.registry import Outboxes

log = SafeLogger("unibus")

END_S: Final = 5.0
"""How long the last steps (relay, capture) may take after a `with` block has ended and all messages are handled."""


class Shutdown:
    """The parts of one bus that have to end. `store`, `durable`, `outboxes` and `capture` are set if it has a store."""

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
        self.draining = False  # New messages are rejected, except those that handlers of this bus publish.
        self.is_left = False  # A `with` block has ended without an exception: wait for handlers without a limit.
        self.is_exit = False  # The interpreter exits: at_exit.py has already waited for handlers.
        self.end = CLOSED  # The cause of the close, for the report of lost messages.
        self.join: Join = threading.Thread.join
        self.store: Store | None = None
        self.durable: DurableChannels | None = None
        self.received_from: set[str] = set()  # The queues that receivers of this bus have locked messages of.
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
                ClosingStep("subscriptions", self._stop_pumps),
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
        """Accept no new messages from now on, except those that handlers of this bus publish."""
        with LOCK:
            if not self._exchange.closed:
                self.draining = True  # Before `closed`: code that sees the bus closed reads this.
                self._exchange.closed = True

    @property
    def url(self) -> str:
        return "memory://" if self.store is None else self.store.url

    def is_stopped(self) -> bool:
        """Whether nothing is delivered: `stop()` was called, and messages wait for `start()`."""
        return self._delivery.paused

    # Messages in-flight

    def wait_for_handlers(self, timeout_s: float | None) -> bool:
        """Wait until all messages are handled that can be. Does not wait for handlers on a loop that does not run."""
        return self._drain_wait.wait(timeout_s, lambda: not self.busy_groups())

    def busy_groups(self) -> list[Group]:
        """The groups with messages that can still be handled."""
        return [group for group in self._registry.groups() if not group.is_idle() and self._executors.can_run(group)]

    def stored_of(self, groups: list[Group]) -> int:
        """How many messages of these groups a durable store will redeliver."""
        if self.durable is None or self.store is None or self.store.durability == Durability.D0:
            return 0
        stored = [group for group, _ in self.durable.groups_here()]
        # Not `delayed`: a pump also counts what it has asked the store, which is no message.
        retries = self._outcomes.retries
        return sum(sum(group.counts()[:2]) + retries.of(group) for group in groups if group in stored)

    def described(self, groups: list[Group]) -> str:
        """The counts of these groups, for a log line."""
        return described(groups, self._outcomes.retries)

    # The steps

    def _stop_pumps(self) -> None:
        if self.durable is not None:
            # A durable store keeps what is not handled: stop to claim, so that the drain ends soon. A store in memory
            # loses it with the process, so its pumps run on until the drain is over.
            if self._handles_stored():
                self.durable.refuse_blocked()
            else:
                self.durable.stop()
        self._refuse_blocked()

    def _refuse_blocked(self) -> None:
        """Publishers that wait for a place look again and find the bus closed, handlers only once it is drained."""
        # Blocked publishers check again, find the bus closed, and raise BusClosed.
        self._executors.wake_publishers()

    def _drain(self) -> None:
        closing = self.closing
        # Watch first, then look (in wait_for): a slot that becomes idle in between is not missed.
        if not self.is_exit:
            self._outcomes.watch(closing.wake)
            try:
                self._unhandled.wait()
            finally:
                self._outcomes.unwatch(closing.wake)
        # Only now: messages that running handlers have not seen are released, and no handler can claim more.
        if self.durable is not None:
            self.durable.stop()
        if self.is_left:
            closing.shorten(END_S)

    def _handles_stored(self) -> bool:
        """Whether persistent channels are drained, too: a store in memory loses unhandled messages."""
        in_memory = self.store is not None and self.store.durability == Durability.D0
        return in_memory and not self.is_stopped() and self._is_waited_for()

    def _end_slots(self) -> None:
        """Deliver nothing more, and cancel running async handlers."""
        closing = self.closing
        # From here on also handlers are refused. `paused` before the cancellation: a slot that requeues its message
        # must not wake another slot for it.
        self.draining = False
        self._delivery.paused = True
        self._refuse_blocked()
        ended: set[asyncio.AbstractEventLoop] = set()

        def on_ended(loop: asyncio.AbstractEventLoop) -> None:
            ended.add(loop)
            closing.wake()

        notified = self._executors.end_all_slots(closing.callers.slots(), on_ended)
        # Do not wait for a loop that cannot run its slots: a caller blocks it in close(), or it is stopped.
        closing.wait_for(
            lambda: all(
                loop in ended or closing.callers.is_blocked(loop) or not loop.is_running() for loop in notified
            ),
            self._patience_s(),
        )

    def _stop_timers(self) -> None:
        # After the drain, which needs the timers of retries; before the workers end, as a timer that is due wakes them.
        self._timers.stop()
        if isinstance(self._timers, ThreadTimers):
            self._timers.join(self._left_s(), self._join)

    def _end_workers(self) -> None:
        ended = self._executors.pause(self._left_s(), self.closing.callers.threads())
        if not ended and self._is_waited_for():
            log.warning("a handler was still running when the bus closed; its daemon thread was left running")

    def _end_loop(self) -> None:
        self._executors.end_loop(self._left_s(), self.closing.callers.slots(), self.closing.callers.threads())
        # Counted when no handler can finish any more, and while the store can still be asked.
        self._unhandled.report(self.store, self.durable, self.end)
        if self.store is not None:
            report_unsettled(self.store, self.received_from)

    def _close_outboxes(self) -> None:
        """Relay committed messages of outboxes into the store before it is closed, while there is time."""
        if self.outboxes is not None:
            self.outboxes.close(self.closing.left_s(), self._join)

    def _close_store(self) -> None:
        # Everything that writes has ended. close() of a store commits what is pending; it is idempotent.
        if self.store is not None:
            self.store.close()

    def _end_capture(self) -> None:
        capture = self.capture
        if capture is not None:
            capture.end(self.closing.left_s(), self._join)
            self.capture = None

    def _join(self, thread: threading.Thread, timeout_s: float | None) -> None:
        """Join a thread, unless it waits in `close()` itself (a callback in it called it): deadlock."""
        if thread not in self.closing.callers.threads():
            self.join(thread, timeout_s)

    def _is_waited_for(self) -> bool:
        """Whether a caller of `close()` expects that published messages are handled."""
        return not self.closing.is_released and not self.is_exit

    def _patience_s(self) -> float:
        """How long to wait for parts that were asked to end; at interpreter exit only briefly."""
        return LEAST_S if self.is_exit else float("inf")

    def _left_s(self) -> float | None:
        left_s = self.closing.left_s()
        return left_s if left_s is None else min(left_s, self._patience_s())
