# mypyc: compiled
"""From the queue into the handler, on the worker pool or in the publisher's thread.

The happy path is here and short: call the handler, count it. What happens when a handler did anything else than
return (raise, answer a request, come too late) is the Aftermath's business.
"""

from typing import Final, final

from mypy_extensions import i64

from unibus.bus.pubsub.group import INSIDE, Consumer, Group, wake, wake_blocked
from unibus.core.envelope.message import Message
from unibus.core.flow.metrics import ChannelMetrics

# What a handler is called with.
TAKES_MESSAGE: Final = 0
TAKES_BODY: Final = 1
TAKES_BOTH: Final = 2
TAKES_NOTHING: Final = 3
TAKES_VIEW: Final = 4

# A slot gives way to others after so many messages; enough that the change costs nothing.
QUANTUM: Final = 256

# Latency is measured on one message out of 64: reading a clock twice would cost more than the queue.
SAMPLE_MASK: Final = 63


class DeliveryOutcomes:
    """What follows a handler that did not simply return. One per bus."""

    def metrics_of(self, channel: str) -> ChannelMetrics:
        raise NotImplementedError

    def is_alive(self, consumer: Consumer, message: Message) -> bool:
        """False when the message has expired: it is dealt with, and not to be handed over."""
        raise NotImplementedError

    def failed(self, consumer: Consumer, message: Message, error: BaseException) -> None:
        raise NotImplementedError

    def answered(self, consumer: Consumer, message: Message, result: object) -> None:
        """The handler returned something, or somebody waits for a reply. Raises if the result is itself a failure."""
        raise NotImplementedError

    def sampled(self, metrics: ChannelMetrics, message: Message) -> None:
        """Record how long this message took from publish to hand-over."""
        raise NotImplementedError

    def rested(self, group: Group) -> None:
        """A slot went idle: whoever waits for the bus to be quiet may look again."""
        raise NotImplementedError


@final
class SlotRunner:
    """Runs slots, on whatever thread asks it to."""

    def __init__(self, outcomes: DeliveryOutcomes) -> None:
        self.outcomes = outcomes
        self.paused = False  # Between stop and start: nothing is handed over, messages wait.

    def run(self, consumer: Consumer) -> bool:
        """Let a claimed slot work. True if it was cut short after its quantum: it is claimed again, and wants to go on.

        Whatever is raised here, too, leaves the slot claimed. While the bus is paused the slot is given up: a worker
        that took it again and again would let no other thread run, not even the one that is about to stop the pool.
        """
        inside = INSIDE.set(consumer)
        consumer.group.begin()
        is_over = False
        try:
            is_over = not self._run(consumer)
        finally:
            INSIDE.reset(inside)
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
        self.outcomes.rested(consumer.group)

    def _run(self, consumer: Consumer) -> bool:
        group = consumer.group
        left: i64 = QUANTUM
        while left and not self.paused:
            message = group.next_for(consumer)
            if message is None:
                self.outcomes.rested(group)
                return False
            if group.has_blocked():
                wake_blocked(group)
            self.deliver(consumer, message)
            left -= 1
        return True

    def prepare(self, consumer: Consumer, message: Message) -> bool:
        """What comes before every hand-over. False when the message has expired and is dealt with."""
        if message.expires_ns and not self.outcomes.is_alive(consumer, message):
            return False
        if message.delivery_count == 0:
            # Shared by all groups. A second delivery has an envelope of its own.
            message.delivery_count = 1
        if message.sequence & SAMPLE_MASK == 0:
            self.outcomes.sampled(self.metrics_of(consumer, message), message)
        return True

    def metrics_of(self, consumer: Consumer, message: Message) -> ChannelMetrics:
        metrics = consumer.group.metrics
        return self.outcomes.metrics_of(message.channel) if metrics is None else metrics

    def deliver(self, consumer: Consumer, message: Message) -> None:
        """Hand one message to the handler and settle it. Only what is no Exception leaves this method."""
        if not self.prepare(consumer, message):
            return
        try:
            result = consumer.handler(message) if consumer.shape == TAKES_MESSAGE else call(consumer, message)
            if result is not None or wants_reply(message):
                self.outcomes.answered(consumer, message, result)
        except BaseException as error:
            self.outcomes.failed(consumer, message, error)
            if not isinstance(error, Exception):
                raise
            return
        # Looked up only now: the channel of a pattern's message may have been forgotten while the handler ran.
        consumer.group.acked(self.metrics_of(consumer, message))


def wants_reply(message: Message) -> bool:
    return message.properties is not None and message.properties.reply_to is not None


def call(consumer: Consumer, message: Message) -> object:
    """Call the handler with what it asks for; the body is converted only if it is not of the type already."""
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
