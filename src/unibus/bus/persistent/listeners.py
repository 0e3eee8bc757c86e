"""Fan-out of persistent channels to listeners: subscriptions by pattern, and lossy ones.

    publish ──▶ store.apply ──▶ Pending ──durable──▶ $listeners group ──▶ worker ──▶ groups of the listeners

Listeners have no durable subscription, so nothing is stored for them. Each message is delivered from memory, after the
store has committed it (a listener never sees a message that a crash could undo), in the order of the commits.
"""

import asyncio
import threading
from collections import deque

from unibus.bus.error_texts import described
from unibus.bus.execution.outcomes import UNANSWERED, BusDeliveryOutcomes
from unibus.bus.pubsub.channel import DUPLICATE, FULL, Channel
from unibus.bus.pubsub.delivery import TAKES_MESSAGE
from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.pubsub.group import Consumer, Group, HandlerExecutor, wake, wake_all
from unibus.bus.subscriptions.subscriptions import next_number
from unibus.core.envelope.message import Message
from unibus.core.flow.metrics import ChannelMetrics
from unibus.core.lifecycle.commands import SendResult
from unibus.safe_log import SafeLogger
from unibus.stores.seam.pending import Pending

log = SafeLogger("unibus")


class ListenerFanOut:
    """Delivers published messages to listeners once they are durable, in order.

    Filters and inline handlers are code of the user: they run on a worker, where they cannot delay a commit.
    """

    def __init__(self, exchange: Exchange, workers: HandlerExecutor, outcomes: BusDeliveryOutcomes) -> None:
        self.group = Group(next_number(), "$listeners", 0)
        self.group.metrics = ChannelMetrics()  # Internal: the channel's own metrics count the deliveries to listeners.
        self._exchange = exchange
        self._outcomes = outcomes
        self._lock = threading.RLock()
        # Batches whose commit is not known yet, in the order of the store's decisions. Changed under `_lock`.
        self._waiting: deque[tuple[Pending[list[object]], list[Message]]] = deque()
        self._unanswered = 0  # Publishes that the store has not decided yet.
        consumer = Consumer(next_number(), self.group, self._deliver, TAKES_MESSAGE)
        consumer.executor = workers
        consumer.name = self.group.name
        consumer.bus = exchange
        self.group.add(consumer)

    def are_wanted(self, target: Channel) -> bool:
        """Whether the channel has a listener now. That it is declared does not count: the store keeps its messages."""
        if target.routes_version != self._exchange.version:
            self._exchange.refresh(target)
        return len(target.routes) > 0

    def follow(self, pending: Pending[list[object]], messages: list[Message]) -> None:
        """Deliver the messages to listeners after the commit. Called in the order of the store's decisions."""
        copies = [message.fresh() for message in messages]
        with self._lock:
            self._waiting.append((pending, copies))
            self._mark_busy()
        pending.on_done(self._answered)

    def begin_publish(self) -> None:
        """A store that decides elsewhere was asked. Until its answer no pump has seen the messages, so drain() waits
        here: also for messages that have no listener."""
        with self._lock:
            self._unanswered += 1
            self._mark_busy()

    def end_publish(self) -> None:
        with self._lock:
            self._unanswered -= 1
            self._mark_busy()
        self._outcomes.on_idle(self.group)

    def _mark_busy(self) -> None:
        """Count what drain() has to wait for. The caller holds the lock."""
        self.group.delayed = len(self._waiting) + self._unanswered

    def _answered(self, answered: Pending[list[object]]) -> None:
        """Queue the messages at the front whose commit is known. Only those: one answer may overtake an earlier one."""
        # Answers may arrive in another order than the decisions. Only the front is released, so that listeners see the
        # order of the store. After a failed commit the messages are dropped: they were never published.
        with self._lock:
            while self._waiting and self._waiting[0][0].done:
                pending, messages = self._waiting.popleft()
                for message in _stored(pending, messages):
                    self.group.queue.append(message, 0)
            self._mark_busy()
        wake(self.group)
        self._outcomes.on_idle(self.group)

    def _deliver(self, message: Message) -> object:
        target = self._exchange.channels.get(message.channel)
        if target is None:
            return UNANSWERED  # The registry has removed the unused channel.
        try:
            if not self.are_wanted(target) or self._post(target, message) > DUPLICATE:
                target.metrics.count("published")
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            # Logged and not retried: another delivery would repeat the message for every listener that has it already.
            log.warning("a listener of %r raised for message %s: %s", message.channel, message.id, described(error))
            for group in target.routes:
                wake_all(group)  # The exception may have prevented the wake-ups of the other groups.
        return UNANSWERED

    def _post(self, target: Channel, message: Message) -> int:
        if target.bucket is None:
            return self._exchange.post(target, message)
        self._exchange.force(target, message)  # Its publish has already spent a token of the rate limit.
        return FULL


def _stored(pending: Pending[list[object]], messages: list[Message]) -> list[Message]:
    """The messages that were stored: none after an error, and no duplicates."""
    if pending.error is not None:
        return []
    duplicates = [isinstance(each, SendResult) and each.duplicate for each in pending.value]
    return [message for message, duplicate in zip(messages, duplicates, strict=True) if not duplicate]
