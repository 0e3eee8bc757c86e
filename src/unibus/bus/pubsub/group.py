# mypyc: compiled
"""Consumer groups: the queue that consumers compete for, and the slots in which handlers run.

    channel ──push──▶ Group.queue ──pop──▶ Consumer slot ──▶ handler

A group gets every message of its channel (fan-out); its consumers compete for them. A consumer has `concurrency` slots.
A running slot takes one message after the other until the queue is empty, and only then becomes idle; a publish wakes
at most one idle slot, and none while all slots are busy. So a burst is cheap: it costs no wake-up per message.

    idle ──claim_slot──▶ claimed ──begin──▶ running ──next_for: queue empty──▶ idle
      ▲                     │ ▲                │
      └──────give_up────────┘ └────suspend─────┘

A claimed slot was woken and has not begun. Its executor owns it, and either lets it begin or gives it up. Every caller
that gives up a slot, or cancels its consumer, wakes another slot: otherwise messages could wait with idle consumers.
A claimed slot is not in-flight: if other slots empty the queue before it begins, the group is drained.

Invariants:
- `idle` = slots that can be claimed now, over all consumers that are neither cancelled nor unrunnable.
- A waiting message is in exactly one count: the queue, `running` (in-flight) or `delayed` (retry).
- Every method that changes state is atomic (see core.atomic) and calls no code of the user.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from unibus.bus.pubsub.blocked import BlockedPublishers
from unibus.core.atomic import LOCK, atomic
from unibus.core.envelope.message import Message
from unibus.core.flow.metrics import ChannelMetrics
from unibus.core.flow.queue import PriorityQueue
from unibus.core.flow.retry import RetryPolicy


@mypyc_attr(allow_interpreted_subclasses=True)
class HandlerExecutor:
    """Where a consumer's slots run: the worker pool, an event loop."""

    def launch(self, consumer: "Consumer") -> bool:
        """Start a claimed slot of the consumer. May be called from any thread.

        False if the slot will not run, or maybe not soon: the caller then wakes a slot of another consumer, too.
        """
        raise NotImplementedError


@final
class Consumer:
    """One subscribed handler. `shape` is what it is called with (execution/handlers.py), `bus` its exchange."""

    def __init__(self, number: int, group: "Group", handler: Callable[..., object], shape: int) -> None:
        self.id: i64 = number
        self.group = group
        self.handler = handler
        self.shape: i64 = shape
        self.convert: Callable[[object], object] | None = None
        self.executor: HandlerExecutor | None = None
        self.concurrency: i64 = 1
        self.active: i64 = 0  # Slots that are claimed or running.
        self.cancelled = False
        self.unrunnable = False  # Its event loop is closed: no slot of it can run again.
        self.retry = RetryPolicy()
        self.requeue_back = False
        self.bus: object = None
        self.name = ""  # Of the user's handler, for the log.
        self.settles = False  # Its handler settles each message in a store, also before it raises KeyboardInterrupt.


@final
class Group:
    """One consumer group. `bound` is the queue size of a lossy group, and 0 for a reliable one, which the channel
    bounds."""

    def __init__(self, number: int, name: str, bound: int) -> None:
        self.number = number  # Its key in the subscription index.
        self.name = name
        self.bound: i64 = bound
        self.queue: PriorityQueue[Message] = PriorityQueue(0)
        self.by_priority = True  # False for a durable subscription that delivers by sequence alone.
        self.filter: Callable[[Message], object] | None = None
        self.inline = False
        self.takes_internal = True  # False for a pattern that does not name dead-letter queues: it matches none.
        self.closed = False  # The last consumer was cancelled: the group takes no more messages.
        self.consumers: list[Consumer] = []  # Replaced, never changed in place: readers need no lock.
        self.idle: i64 = 0  # Slots that can be claimed now.
        self.leaving: i64 = 0  # Claimed or running slots of consumers that are cancelled or unrunnable.
        self.delayed: i64 = 0  # Failed messages that wait for their retry.
        # The delayed messages that count against max_queue_size (0 for persistent channels, where the store counts).
        # One that is being redelivered does not count any more: its handler may publish to this channel.
        self.retrying: i64 = 0
        self.running: i64 = 0  # Slots that have begun; claimed ones are not counted.
        self.dropped: i64 = 0  # Messages that a full lossy queue has dropped.
        self.metrics: ChannelMetrics | None = None  # Of its channel; None for a subscription to a pattern.
        self.on_no_runnable_consumer: Callable[[], None] | None = None  # Called when no consumer can run any more.
        self._turn: i64 = 0  # Round-robin over the consumers.
        self._blocked: list[BlockedPublishers] = []  # Of the channels whose publishers wait for a place here.

    def add(self, consumer: Consumer) -> None:
        with LOCK:
            self.consumers = [*self.consumers, consumer]
            self.idle += consumer.concurrency

    def remove(self, consumer: Consumer) -> None:
        """Cancel a consumer. Its idle slots end at once, its busy ones when their handler returns."""
        with LOCK:
            if not consumer.cancelled:
                self.consumers = [other for other in self.consumers if other is not consumer]
                if not consumer.unrunnable:
                    self.idle -= consumer.concurrency - consumer.active
                    self.leaving += consumer.active
                consumer.cancelled = True

    def mark_unrunnable(self, executor: HandlerExecutor) -> None:
        """The consumers of this executor cannot run any more (closed loop): none of their slots is claimed again."""
        with LOCK:
            for consumer in self.consumers:
                if consumer.executor is executor and not consumer.unrunnable:
                    consumer.unrunnable = True
                    self.idle -= consumer.concurrency - consumer.active
                    self.leaving += consumer.active

    def has_no_runnable_consumer(self) -> bool:
        """Whether every consumer is unrunnable, or none is left."""
        return all([consumer.unrunnable for consumer in self.consumers])

    def claim_slot(self) -> Consumer | None:
        """Claim an idle slot for a waiting message, in turn over the consumers. None: no message, or no idle slot."""
        # Without a message no slot is claimed: a woken slot with an empty queue would cost a thread switch for nothing.
        if self.idle <= 0 or self.queue.size == 0:
            return None
        count: i64 = len(self.consumers)
        for step in range(count):
            consumer = self.consumers[(self._turn + step) % count]
            if consumer.active < consumer.concurrency and not consumer.unrunnable:
                # Both counts change in this one step, so two publishers never claim the same slot.
                self._turn += step + 1
                consumer.active += 1
                self.idle -= 1
                return consumer
        return None

    def begin(self) -> None:
        """A claimed slot begins. Called before it pops a message, so that no message is missing in `counts`."""
        self.running += 1

    def suspend(self) -> None:
        """A running slot stops before the queue is empty. It is claimed again."""
        self.running -= 1

    def next_for(self, consumer: Consumer) -> Message | None:
        """Pop the next message for a running slot. None: from now on the slot is idle (or ended, if cancelled).

        "Queue empty" and "slot idle" are one atomic step: a publish in between sees either the message taken or an
        idle slot to wake, so no message waits without a wake-up.
        """
        if not consumer.cancelled:
            message = self.queue.pop()
            if message is not None:
                return message
        self.running -= 1
        self._release(consumer)
        return None

    def give_up(self, consumer: Consumer) -> None:
        """Release a claimed slot that does not run. The caller wakes another slot."""
        self._release(consumer)

    def _release(self, consumer: Consumer) -> None:
        consumer.active -= 1
        # `remove` and `mark_unrunnable` have already subtracted the idle slots of such a consumer. A slot that was busy
        # at that time ends here, and must not become claimable again.
        if not consumer.cancelled and not consumer.unrunnable:
            self.idle += 1
        else:
            self.leaving -= 1

    def is_bounded_here(self) -> bool:
        """Whether its queue counts against max_queue_size: it is reliable, not inline, and open."""
        return self.bound == 0 and not self.inline and not self.closed

    def make_space(self, priority: i64, metrics: ChannelMetrics) -> bool:
        """Make a place in a lossy queue: evicts the oldest of the least urgent messages.

        False if all waiting messages are more urgent than the new one, which is then the one to drop.
        """
        if self.queue.size + self.retrying < self.bound:
            return True
        # Counted before the eviction, because either way one message is dropped: the evicted one or the new one.
        self.dropped += 1
        metrics.overflowed += 1
        return self.queue.evict(priority) is not None

    def acked(self, metrics: ChannelMetrics) -> None:
        metrics.dispatched += 1

    def depth(self) -> int:
        """Messages that count against max_queue_size: in the queue, or waiting for a retry."""
        return self.queue.size + self.retrying

    def delay(self) -> None:
        """A message has failed and waits for its retry. It may exceed the bound: a retry is never rejected."""
        self.delayed += 1
        self.retrying += 1

    def undelay(self, message: Message, back: bool) -> None:
        """The retry of a message is due: queue it at its old position, or at the end of its priority level."""
        # Uncounted and queued in one atomic step: `counts` never sees the message twice, and never not at all, so
        # drain() does not take the bus for idle in between.
        self.delayed -= 1
        self.retrying -= 1
        if back:
            self.queue.append(message, message.priority)
        else:
            self.restore(message)

    def restore(self, message: Message) -> None:
        """Requeue a message that a slot popped and did not handle, at its old position."""
        self.queue.restore(message, self.level_of(message), message.sequence)

    def level_of(self, message: Message) -> i64:
        """The priority level of the queue that the message belongs to."""
        return message.priority if self.by_priority else 0

    def counts(self) -> "tuple[int, int, int]":
        """Backlog, in-flight and delayed, read atomically: a message is in exactly one of them."""
        return (self.queue.size, self.running, self.delayed)

    def is_idle(self) -> bool:
        """Whether no message waits, is in-flight, or waits for a retry."""
        return self.queue.size == 0 and self.running == 0 and self.delayed == 0

    def wakes(self, blocked: BlockedPublishers) -> None:
        """Register blocked publishers: each message that leaves the queue grants its place to the first of them."""
        with LOCK:
            if blocked not in self._blocked:
                self._blocked = [*self._blocked, blocked]

    def has_blocked(self) -> bool:
        return len(self._blocked) > 0

    def take_blocked(self) -> list[BlockedPublishers]:
        """The registered ones that still have a blocked publisher; the others are unregistered."""
        # The list is replaced and not changed in place: the caller iterates over it without LOCK, while it grants.
        with LOCK:
            self._blocked = [blocked for blocked in self._blocked if blocked.count]
            return self._blocked


atomic(Group, "claim_slot", "begin", "suspend", "next_for", "give_up")
atomic(Group, "make_space", "acked", "depth", "delay", "undelay", "is_idle", "counts")


def wake(group: Group) -> None:
    """Start an idle slot if a message waits; also the next one, if the first may not run soon."""
    # Read without a lock: the message was pushed before this read. A slot that becomes idle after it has found the
    # queue empty, so another slot has taken the message already, and no wake-up is missing.
    if group.idle > 0:
        consumer = group.claim_slot()
        while consumer is not None and consumer.executor is not None and not consumer.executor.launch(consumer):
            consumer = group.claim_slot()


def wake_blocked(group: Group) -> None:
    """A place in the group's queue is free: grant it to a blocked publisher of each registered channel."""
    for blocked in group.take_blocked():
        blocked.grant()


def wake_all(group: Group) -> None:
    """Start as many idle slots as messages wait."""
    for _ in range(min(group.idle, group.queue.size)):
        wake(group)


# The consumer whose handler is running: set in the threads and tasks that run slots, inherited by tasks they start.
# It detects calls from inside a handler, which must not wait for that handler (block, drain, close).
INSIDE: Final[ContextVar[Consumer | None]] = ContextVar("unibus_inside", default=None)
