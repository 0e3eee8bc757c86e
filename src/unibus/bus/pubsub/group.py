# mypyc: compiled
"""A group and its consumers: who gets a message, and when somebody has to be woken.

    channel ──push──▶ Group.queue ──pop──▶ Consumer slot ──▶ handler

A group gets every message of its channel; its consumers compete. A consumer has `concurrency` slots. A slot that runs
takes one message after the other until the queue is empty, and only then goes idle; a publish wakes at most one
idle slot, and none while all are busy. That is what makes a burst cheap: no wake-up per message.

    idle ──claim_slot──▶ claimed ──begin──▶ running ──next_for: queue empty──▶ idle
      ▲                     │ ▲                │
      └──────give_up────────┘ └────suspend─────┘

A claimed slot was woken and has not taken its first step. It belongs to its launcher, which either lets it begin or
gives it up; who gives up a slot, or cancels its consumer, wakes another one for the messages that wait. A claimed slot
is not at work: if others empty the queue before it begins, the group is drained.

Every method here that changes state is one step (see core.atomic) and calls nothing of the user's.
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
        """Let a claimed slot of the consumer run. May be called from any thread.

        False if it will not run, or if that may take long: the caller then wakes a slot of another consumer too.
        """
        raise NotImplementedError


@final
class Consumer:
    """One subscribed handler. `shape` says what it is called with (see handlers.py), `bus` whose it is."""

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
        self.stranded = False  # Its event loop is closed: none of its slots can run again.
        self.retry = RetryPolicy()
        self.requeue_back = False
        self.bus: object = None


@final
class Group:
    """The queue that consumers compete for. `bound` is the size of a lossy group's own queue, 0 for a reliable one."""

    def __init__(self, number: int, name: str, bound: int) -> None:
        self.number = number  # Its name in the subscription index.
        self.name = name
        self.bound: i64 = bound
        self.queue: PriorityQueue[Message] = PriorityQueue(0)
        self.by_priority = True  # False for a durable subscription that delivers by sequence alone.
        self.filter: Callable[[Message], object] | None = None
        self.inline = False
        self.takes_internal = True  # False for a pattern that does not spell a dead-letter queue: it gets none.
        self.closed = False  # Nobody is left; what still comes is not taken.
        self.consumers: list[Consumer] = []
        self.idle: i64 = 0  # Slots that could start now.
        self.delayed: i64 = 0  # Failed messages that wait for their retry.
        # The same, as they count against the bound. Not while they are delivered again: a handler may publish here.
        self.retrying: i64 = 0
        self.running: i64 = 0  # Slots at work; those that are only claimed are not.
        self.dropped: i64 = 0  # By a lossy queue.
        self.metrics: ChannelMetrics | None = None  # Of its channel; None when it is subscribed to a pattern.
        self.deserted: Callable[[], None] | None = None  # Called when the last consumer that could run is stranded.
        self._turn: i64 = 0
        self._blocked: list[BlockedPublishers] = []  # Of the channels whose publishers wait for room here.

    def add(self, consumer: Consumer) -> None:
        with LOCK:
            self.consumers = [*self.consumers, consumer]
            self.idle += consumer.concurrency

    def remove(self, consumer: Consumer) -> None:
        """Its free slots are gone at once, its busy ones when their handler returns."""
        with LOCK:
            if not consumer.cancelled:
                self.consumers = [other for other in self.consumers if other is not consumer]
                if not consumer.stranded:
                    self.idle -= consumer.concurrency - consumer.active
                consumer.cancelled = True

    def strand(self, executor: HandlerExecutor) -> None:
        """The consumers of this launcher cannot run any more: no slot of theirs is claimed again."""
        with LOCK:
            for consumer in self.consumers:
                if consumer.executor is executor and not consumer.stranded:
                    consumer.stranded = True
                    self.idle -= consumer.concurrency - consumer.active

    def is_deserted(self) -> bool:
        """Whether no consumer is left that could run."""
        return all([consumer.stranded for consumer in self.consumers])

    def claim_slot(self) -> Consumer | None:
        """Take an idle slot for a message that waits, in turn over the consumers."""
        if self.idle <= 0 or self.queue.size == 0:
            return None
        count: i64 = len(self.consumers)
        for step in range(count):
            consumer = self.consumers[(self._turn + step) % count]
            if consumer.active < consumer.concurrency and not consumer.stranded:
                self._turn += step + 1
                consumer.active += 1
                self.idle -= 1
                return consumer
        return None

    def begin(self) -> None:
        """A claimed slot takes its first step: before it takes a message, so that each message is in one count."""
        self.running += 1

    def suspend(self) -> None:
        """A running slot stops without having seen an empty queue. It is claimed again."""
        self.running -= 1

    def next_for(self, consumer: Consumer) -> Message | None:
        """The next message for a running slot. None means that the slot is idle (or cancelled) from now on."""
        if not consumer.cancelled:
            message = self.queue.pop()
            if message is not None:
                return message
        self.running -= 1
        self._release(consumer)
        return None

    def give_up(self, consumer: Consumer) -> None:
        """A slot that was claimed and does not run. The caller wakes another one, if one can run now."""
        self._release(consumer)

    def _release(self, consumer: Consumer) -> None:
        consumer.active -= 1
        if not consumer.cancelled and not consumer.stranded:
            self.idle += 1

    def is_bounded_here(self) -> bool:
        """Whether its queue counts against the channel's bound: it is reliable, and it queues at all."""
        return self.bound == 0 and not self.inline and not self.closed

    def make_room(self, priority: i64, metrics: ChannelMetrics) -> bool:
        """Let a lossy queue take a message of that priority; False if the newcomer itself has to go."""
        if self.queue.size + self.retrying < self.bound:
            return True
        self.dropped += 1
        metrics.overflowed += 1
        return self.queue.evict(priority) is not None

    def acked(self, metrics: ChannelMetrics) -> None:
        metrics.dispatched += 1

    def depth(self) -> int:
        """Messages that count against the channel's bound: those that wait, also for a retry."""
        return self.queue.size + self.retrying

    def delay(self) -> None:
        """A message has failed and waits for its retry. It may be over the bound: a retry never waits for room."""
        self.delayed += 1
        self.retrying += 1

    def undelay(self, message: Message, back: bool) -> None:
        """A failed message is due again: at its old place, or at the end of its level."""
        self.delayed -= 1
        self.retrying -= 1
        if back:
            self.queue.append(message, message.priority)
        else:
            self.restore(message)

    def restore(self, message: Message) -> None:
        """Put back a message that a slot took and did not handle, at its old place."""
        self.queue.restore(message, self.level_of(message), message.sequence)

    def level_of(self, message: Message) -> i64:
        """The level of the queue that the message is on."""
        return message.priority if self.by_priority else 0

    def counts(self) -> "tuple[int, int, int]":
        """Backlog, in-flight and delayed, seen in one step: a message is in exactly one of them."""
        return (self.queue.size, self.running, self.delayed)

    def is_quiet(self) -> bool:
        return self.queue.size == 0 and self.running == 0 and self.delayed == 0

    def wakes(self, blocked: BlockedPublishers) -> None:
        """Let a message that leaves grant its place to the first of these."""
        with LOCK:
            if blocked not in self._blocked:
                self._blocked = [*self._blocked, blocked]

    def has_blocked(self) -> bool:
        return len(self._blocked) > 0

    def take_blocked(self) -> list[BlockedPublishers]:
        """Those with a publisher that waits; the others are not asked again."""
        with LOCK:
            self._blocked = [blocked for blocked in self._blocked if blocked.count]
            return self._blocked


atomic(Group, "claim_slot", "begin", "suspend", "next_for", "give_up")
atomic(Group, "make_room", "acked", "depth", "delay", "undelay", "is_quiet", "counts")


def wake(group: Group) -> None:
    """Start an idle slot if a message waits for one; the next one if the first cannot run soon."""
    if group.idle > 0:
        consumer = group.claim_slot()
        while consumer is not None and consumer.executor is not None and not consumer.executor.launch(consumer):
            consumer = group.claim_slot()


def wake_blocked(group: Group) -> None:
    """A place in the group's queue is free: it is granted to a publisher of each channel that waits for it."""
    for blocked in group.take_blocked():
        blocked.grant()


def wake_all(group: Group) -> None:
    """Start as many idle slots as there are messages waiting."""
    for _ in range(min(group.idle, group.queue.size)):
        wake(group)


# The consumer whose handler is running: known to the threads and tasks that run slots, and to tasks that these start.
INSIDE: Final[ContextVar[Consumer | None]] = ContextVar("unibus_inside", default=None)
