# mypyc: compiled
"""Delivery: takes messages from a group's queue and calls the handler, on a worker or in the publisher's thread.

    Group.queue ──next_for──▶ expired? ──no──▶ handler ──returns None──▶ counted as dispatched
                                 │yes             │ raises, or returns a value
                                 ▼                ▼
                             DeliveryOutcomes: dead-letter, retry, reply (execution/outcomes.py)

Only the common path is here, so that it stays short. Async handlers have the same path in execution/event_loops.py.
"""

from typing import Final, final

from mypy_extensions import i64

from unibus.bus.pubsub.group import INSIDE, Consumer, Group, wake, wake_blocked
from unibus.core.envelope.message import Message
from unibus.core.flow.metrics import ChannelMetrics

# The arguments that a handler is called with (execution/handlers.py).
TAKES_MESSAGE: Final = 0
TAKES_BODY: Final = 1
TAKES_BOTH: Final = 2
TAKES_NOTHING: Final = 3
TAKES_VIEW: Final = 4

# A slot yields to other slots after this many messages: fair to the others, and rare enough that the switch is cheap.
QUANTUM: Final = 256

# Latency is sampled on one message out of 64: reading a clock twice per message would cost more than the queue.
SAMPLE_MASK: Final = 63


class DeliveryOutcomes:
    """What happens after a handler that did not simply return None. One instance for each bus."""

    def metrics_of(self, channel: str) -> ChannelMetrics:
        raise NotImplementedError

    def is_deliverable(self, consumer: Consumer, message: Message) -> bool:
        """False when the message has expired: it was dead-lettered or counted, and must not be delivered."""
        raise NotImplementedError

    def failed(self, consumer: Consumer, message: Message, error: BaseException) -> None:
        """The handler raised: retry the message, or dead-letter it."""
        raise NotImplementedError

    def answered(self, consumer: Consumer, message: Message, result: object) -> None:
        """The handler returned a value, or the message is a request. Raises if the value is no valid result."""
        raise NotImplementedError

    def record_latency(self, metrics: ChannelMetrics, message: Message) -> None:
        """Record the time from publish to delivery of this message."""
        raise NotImplementedError

    def on_idle(self, group: Group) -> None:
        """A slot became idle: a `drain` that waits for the bus checks again."""
        raise NotImplementedError


@final
class SlotRunner:
    """Runs the slots of sync handlers, on the calling thread."""

    def __init__(self, outcomes: DeliveryOutcomes) -> None:
        self.outcomes = outcomes
        self.paused = False  # Between stop and start: nothing is delivered, messages wait.

    def run(self, consumer: Consumer) -> bool:
        """Run a claimed slot. True if it stopped after its quantum: it is claimed still, and has to be run again.

        An exception (SystemExit, KeyboardInterrupt) leaves the slot claimed, too. While the bus is paused the slot is
        released: a worker that took it again and again would let no other thread run, not even the one that is about to
        stop the pool.
        """
        # INSIDE for the whole slot and not for each message: setting a context variable per message would cost more.
        inside = INSIDE.set(consumer)
        consumer.group.begin()
        is_over = False
        try:
            is_over = not self._run(consumer)
        finally:
            INSIDE.reset(inside)
            # After the quantum, or when the handler raised SystemExit: the slot no longer runs, but stays claimed. At
            # the end of the queue next_for has already made the slot idle.
            if not is_over:
                consumer.group.suspend()
        if not is_over and self.paused:
            self._give_up(consumer)
            return False
        return not is_over

    def _give_up(self, consumer: Consumer) -> None:
        """Its messages wait for the start. That may have come: it found the slot claimed, and did not wake it."""
        consumer.group.give_up(consumer)
        if not self.paused:
            wake(consumer.group)
        self.outcomes.on_idle(consumer.group)

    def _run(self, consumer: Consumer) -> bool:
        group = consumer.group
        left: i64 = QUANTUM
        while left and not self.paused:
            message = group.next_for(consumer)
            if message is None:
                self.outcomes.on_idle(group)
                return False
            # The pop has freed a place. Before the handler is called: it may run for long, and the publisher need not
            # wait for it.
            if group.has_blocked():
                wake_blocked(group)
            self.deliver(consumer, message)
            left -= 1
        return True

    def prepare(self, consumer: Consumer, message: Message) -> bool:
        """The common steps before every delivery. False when the message has expired and must not be delivered."""
        if message.expires_ns and not self.outcomes.is_deliverable(consumer, message):
            return False
        if message.delivery_count == 0:
            # All groups share this envelope. A redelivery has a copy with its own delivery count.
            message.delivery_count = 1
        if message.sequence & SAMPLE_MASK == 0:
            self.outcomes.record_latency(self.metrics_of(consumer, message), message)
        return True

    def metrics_of(self, consumer: Consumer, message: Message) -> ChannelMetrics:
        metrics = consumer.group.metrics
        return self.outcomes.metrics_of(message.channel) if metrics is None else metrics

    def deliver(self, consumer: Consumer, message: Message) -> None:
        """Call the handler with one message and settle it. Raises only what is no Exception, such as SystemExit."""
        if not self.prepare(consumer, message):
            return
        try:
            result = consumer.handler(message) if consumer.shape == TAKES_MESSAGE else call(consumer, message)
            if result is not None or wants_reply(message):
                self.outcomes.answered(consumer, message, result)
        # Also SystemExit and KeyboardInterrupt: the message was popped and is in no queue any more. It must become a
        # retry or a dead-lettered message before the exception leaves this frame, or it would be lost.
        except BaseException as error:
            self.outcomes.failed(consumer, message, error)
            if not isinstance(error, Exception):
                raise
            return
        # Looked up only after the handler: the registry may have removed the unused channel of a pattern's message.
        consumer.group.acked(self.metrics_of(consumer, message))


def wants_reply(message: Message) -> bool:
    return message.properties is not None and message.properties.reply_to is not None


def call(consumer: Consumer, message: Message) -> object:
    """Call the handler with the arguments of its signature; converts the body only if it has another type."""
    shape = consumer.shape
    if shape == TAKES_MESSAGE:
        return consumer.handler(message)
    if shape == TAKES_NOTHING:
        return consumer.handler()
    convert = consumer.convert
    if shape == TAKES_VIEW:
        assert convert is not None
        return consumer.handler(convert(message))
    body = message.body if convert is None else convert(message.body)
    return consumer.handler(body) if shape == TAKES_BODY else consumer.handler(body, message)
