# mypyc: compiled
"""Delivery outcomes: what happens when a handler does anything else than return None: retry, dead-letter, reply.

    raised ──▶ attempts left? ──yes──▶ timer ──▶ redelivered from its old position in the group's queue
                    │no
                    ▼
               dead-lettered: to the channel's dead_letter_channel, else `<channel>/$DeadLetterQueue`

Invariant: a message is in exactly one of these states. It leaves its group only after a handler has returned, or once
it is in the dead-letter channel, whose bound it may exceed: a full dead-letter queue must not lose a message.
"""

from collections.abc import Callable, Coroutine
from typing import Final, final

from unibus.bus.dead_letter_copy import dead_letter
from unibus.bus.error_texts import described
from unibus.bus.execution.failure_log import FailedDelivery, FailureLog, command_for_channel, shown
from unibus.bus.execution.retries import PendingRetries
from unibus.bus.pubsub.channel import Channel, Evicted
from unibus.bus.pubsub.delivery import DeliveryOutcomes
from unibus.bus.pubsub.exchange import REQUEST_HEADER, Exchange
from unibus.bus.pubsub.group import Consumer, Group, wake
from unibus.bus.timers import Timers
from unibus.core.atomic import LOCK
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import MessageProperties
from unibus.core.flow.deadletter import (
    MAX_DELIVERY_COUNT_EXCEEDED,
    PAYLOAD_MISMATCH,
    QUEUE_OVERFLOW,
    TTL_EXPIRED,
    Verdict,
    after_failure,
    sub_queue,
    target,
    was_dead_lettered,
)
from unibus.core.flow.expiry import is_expired
from unibus.core.flow.metrics import ChannelMetrics
from unibus.errors import BusError, HandlerInvalid, PayloadMismatch
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")

UNANSWERED: Final = object()
"""The result of an internal handler that sends no reply: another group replies, or the next delivery."""


@final
class BusDeliveryOutcomes(DeliveryOutcomes):
    """The delivery outcomes of one bus."""

    def __init__(self, exchange: Exchange, timers: Timers, chance: Callable[[], float]) -> None:
        self._exchange = exchange
        self._timers = timers
        self._chance = chance
        self.retries = PendingRetries(exchange.monotonic_ns)
        self.failures = FailureLog(exchange.monotonic_ns, exchange.feedback)
        self.watchers: list[Callable[[], None]] = []  # Called when a slot becomes idle: drain() and close() wait so.
        self.orphaned: Callable[[Group], None] | None = None  # Takes over the backlog of a closed group.
        self.dead_letter_queue: Callable[[str], Channel] | None = None  # Finds or makes a dead-letter channel.

    def watch(self, watcher: Callable[[], None]) -> None:
        # Replaced, not changed in place: `on_idle` iterates without LOCK, as a watcher takes a lock of its own.
        with LOCK:
            self.watchers = [*self.watchers, watcher]

    def unwatch(self, watcher: Callable[[], None]) -> None:
        with LOCK:
            self.watchers = [other for other in self.watchers if other is not watcher]

    def metrics_of(self, channel: str) -> ChannelMetrics:
        found = self._exchange.channels.get(channel)
        return self._exchange.refused if found is None else found.metrics

    def record_latency(self, metrics: ChannelMetrics, message: Message) -> None:
        metrics.dispatch_latency.record(max(0, self._exchange.wall_ns() - message.timestamp_ns))

    def on_idle(self, group: Group) -> None:
        # A message can enter a closed group after its backlog was moved: from a cancelled handler, or by a retry. Each
        # slot that ends looks again, so it does not stay in a queue that no consumer reads.
        if group.closed and group.queue.size and self.orphaned is not None:
            self.orphaned(group)
        for watcher in self.watchers:
            watcher()

    def is_deliverable(self, consumer: Consumer, message: Message) -> bool:
        if not is_expired(message.expires_ns, self._exchange.wall_ns()):
            return True
        self.expired(consumer.group.name, message)
        return False

    def expired(self, group: str, message: Message) -> None:
        self.metrics_of(message.channel).count("expired")
        self._dead_letter_unhandled(group, message, TTL_EXPIRED)

    def dead_letter(self, channel: Channel, evicted: list[Evicted]) -> None:
        """Dead-letter the evicted messages: all of them, also after an inline handler that raises SystemExit."""
        failure: BaseException | None = None
        for evicted_item in evicted:
            try:
                self._dead_letter_evicted_item(channel, evicted_item)
            except BaseException as error:
                failure = error if failure is None else failure
        if failure is not None:
            raise failure

    def _dead_letter_evicted_item(self, channel: Channel, evicted_item: Evicted) -> None:
        if evicted_item.expired:
            self.expired("", evicted_item.message)
        else:
            channel.metrics.count("evicted")
            self._dead_letter_unhandled("", evicted_item.message, QUEUE_OVERFLOW)

    def _dead_letter_unhandled(self, group: str, message: Message, reason: str) -> None:
        """Dead-letter a message that no handler has failed for, if it is kept at all: a warning, not an error."""
        place = self._move_to_dead_letters(group, message, reason, None)
        if place:
            log.warning(
                "message %s of channel %r is dead-lettered in %r (%s)",
                shown(message.id),
                message.channel,
                place,
                reason,
            )

    def failed(self, consumer: Consumer, message: Message, error: BaseException) -> None:
        # Runs in the thread or task of the handler, while its slot still counts as running: drain() cannot see the bus
        # as idle before the message is a retry or is dead-lettered. An inline handler has no slot, but its publisher
        # waits for it.
        if consumer.settles and not issubclass(type(error), Exception):
            return  # Abandoned or dead-lettered in its store: a retry in memory would be a second delivery.
        metrics = self.metrics_of(message.channel)
        metrics.count("errors")
        # A retry cannot help: the body will never have the handler's type.
        unfit = issubclass(type(error), PayloadMismatch)
        if after_failure(message.delivery_count, consumer.retry.deliveries_max, unfit) is Verdict.RETRY:
            metrics.count("retried")
            self._retry(consumer, message, error)
        else:
            self._give_up(consumer, message, PAYLOAD_MISMATCH if unfit else MAX_DELIVERY_COUNT_EXCEEDED, error)

    def _retry(self, consumer: Consumer, message: Message, error: BaseException) -> None:
        group = consumer.group
        again = message.copy()  # The other groups share the original, with a delivery count of their own.
        again.delivery_count = message.delivery_count + 1
        back = consumer.requeue_back
        delay_ns = consumer.retry.delay_ns(message.delivery_count, self._chance())
        # Added before `delay`, discarded after `undelay`: `retries` knows every retry that the group counts, so a close
        # in between does not mistake a retry for a message that is being handled.
        number = self.retries.add(group, delay_ns)
        group.delay()

        def due() -> None:
            group.undelay(again, back)
            self.retries.discard(number)
            if group.closed:
                self.on_idle(group)
            else:
                wake(group)

        # If the process ends before the timer, the message is lost with the rest of the memory: retries in memory are
        # not durable. Persistent channels keep the delay in the store (persistent/pump.py).
        try:
            # Before the message can be handled again, so that its lines are in order.
            self.failures.retried(failed_delivery(consumer, message, error), delay_ns)
        finally:  # Also if Ctrl-C interrupts the log.
            if delay_ns:
                self._timers.after(delay_ns, due)
            else:
                due()

    def _give_up(self, consumer: Consumer, message: Message, reason: str, error: BaseException) -> None:
        """The last delivery has failed: dead-letter the message, or discard it if it is in a dead-letter queue."""
        failed = failed_delivery(consumer, message, error)
        place = self._move_to_dead_letters(failed.group, message, reason, error)
        if place:
            in_own_queue = place == sub_queue(message.channel)
            command = command_for_channel(message.channel) if in_own_queue else f"bus.subscribe({place!r}, …)"
            self.failures.dead_lettered(failed, reason, place, command)
        else:
            self.metrics_of(message.channel).count("discarded")
            self.failures.discarded(failed, reason)
        # A requester must get one answer. A group of a pattern (no metrics) only listens to requests, so it never
        # answers.
        if consumer.group.metrics is not None:
            self.reply_failure(message, reason, error)

    def _move_to_dead_letters(self, group: str, message: Message, reason: str, error: BaseException | None) -> str:
        """Dead-letter a message, past every bound. Returns the queue; "" if it has none to go to: it failed in one
        already, or it expired or was evicted on a channel without dead_letter_channel (core/flow/deadletter.py)."""
        origin = self._exchange.channels.get(message.channel)
        named = None if origin is None else origin.dead_letter_channel
        place = target(message.channel, named or "", reason, was_dead_lettered(message.headers))
        if not place or self.dead_letter_queue is None:
            return ""
        # A copy with a new channel. The original is left as it is: other groups may be handling it right now.
        dead_message = dead_letter(message, place, reason, error, group, self._exchange.wall_ns())
        self.metrics_of(message.channel).count("dead_lettered")
        self._exchange.force(self.dead_letter_queue(place), dead_message)
        return place

    # Requests

    def answered(self, consumer: Consumer, message: Message, result: object) -> None:
        if result is UNANSWERED:
            return
        refuse_coroutine(consumer.group.name, result)
        properties = message.properties
        if (
            properties is not None
            and properties.reply_to is not None
            and self._may_answer(consumer.group, message, result)
        ):
            self._reply(properties.reply_to, message, result, {})

    def _may_answer(self, group: Group, message: Message, result: object) -> bool:
        """Whether the result is a reply. A group of a pattern never replies; None replies only for the only group."""
        channel = self._exchange.channels.get(message.channel)
        alone = channel is None or len(channel.groups) <= 1  # No group at all: a persistent channel, see pump.py.
        return group.metrics is not None and (result is not None or alone)

    def _reply(self, reply_to: str, message: Message, body: object, headers: dict[str, str]) -> None:
        properties = MessageProperties()
        properties.correlation_id = message.correlation_id or message.id
        properties.headers[REQUEST_HEADER] = message.id
        for name, value in headers.items():
            properties.headers[name] = value
        try:
            self._exchange.publish(reply_to, body, None, properties)
        except BusError as error:
            # The requester has closed, or its inbox is full. The request was handled, so the message does not fail.
            log.warning("the reply to %r could not be published: %s", reply_to, error)

    def reply_failure(self, message: Message, reason: str, error: BaseException | None) -> None:
        """Answer a request with its failure, so that the requester need not wait for its timeout."""
        properties = message.properties
        if properties is not None and properties.reply_to is not None:
            text = "" if error is None else described(error)
            self._reply(properties.reply_to, message, None, {"error_reason": reason, "error_text": text})


def refuse_coroutine(group: str, result: object) -> None:
    """Raise for a sync wrapper around an async handler: its code never ran.

    A failure, so that the message is retried and dead-lettered instead of being acknowledged unhandled. On a persistent
    channel it is checked before the message is completed.
    """
    if isinstance(result, Coroutine):
        result.close()
        raise HandlerInvalid(
            f"the handler of group {group!r} returned a coroutine, which is not awaited",
            "declare the handler itself with async def",
        )


def failed_delivery(consumer: Consumer, message: Message, error: BaseException) -> FailedDelivery:
    return FailedDelivery(
        consumer.name,
        consumer.group.name,
        message.channel,
        message.id,
        message.delivery_count,
        consumer.retry.deliveries_max,
        error,
    )
