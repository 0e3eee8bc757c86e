"""Echoes: what was published to persistent channels, for those who only listen, by pattern or with a lossy queue.

They have no durable subscription, so nothing is kept for them: each message is delivered from memory, once the store
has answered for it, and in the order of what the store decided.
"""

import asyncio
import logging
import threading
from collections import deque

from unibus.bus.dead_letter_copy import described
from unibus.bus.execution.outcomes import UNANSWERED, BusDeliveryOutcomes
from unibus.bus.pubsub.channel import DUPLICATE, FULL, Channel
from unibus.bus.pubsub.delivery import TAKES_MESSAGE
from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.pubsub.group import Consumer, Group, HandlerExecutor, wake, wake_all
from unibus.bus.subscriptions.subscriptions import next_number
from unibus.core.envelope.message import Message
from unibus.core.flow.metrics import ChannelMetrics
from unibus.core.lifecycle.commands import SendResult
from unibus.stores.seam.pending import Pending

log = logging.getLogger("unibus")


class ListenerFanOut:
    """What was published to persistent channels, for those who only listen: once it is durable, and in order.

    Filters and inline handlers are code of the user. They run on a worker, where they can hold up no commit.
    """

    def __init__(self, exchange: Exchange, workers: HandlerExecutor, outcomes: BusDeliveryOutcomes) -> None:
        self.group = Group(next_number(), "$listeners", 0)
        self.group.metrics = ChannelMetrics()  # Not shown: the channel counts the listeners that were called.
        self._exchange = exchange
        self._outcomes = outcomes
        self._lock = threading.RLock()
        self._waiting: deque[tuple[Pending[list[object]], list[Message]]] = deque()
        consumer = Consumer(next_number(), self.group, self._tell, TAKES_MESSAGE)
        consumer.executor = workers
        consumer.bus = exchange
        self.group.add(consumer)

    def are_wanted(self, target: Channel) -> bool:
        """Whether there is a listener now. That the channel was created does not count: the store is what keeps."""
        if target.routes_version != self._exchange.version:
            self._exchange.refresh(target)
        return len(target.routes) > 0

    def follow(self, pending: Pending[list[object]], messages: list[Message]) -> None:
        """Let the listeners hear these after the answer. Calls come in the order of what the store decided."""
        copies = [message.fresh() for message in messages]
        with self._lock:
            self._waiting.append((pending, copies))
            self.group.delayed = len(self._waiting)  # The bus is not quiet until they were heard.
        pending.on_done(self._answered)

    def _answered(self, answered: Pending[list[object]]) -> None:
        """Those in front whose answers are there, and no others: an answer may overtake the one before it."""
        with self._lock:
            while self._waiting and self._waiting[0][0].done:
                pending, messages = self._waiting.popleft()
                for message in _stored(pending, messages):
                    self.group.queue.append(message, 0)
            self.group.delayed = len(self._waiting)
        wake(self.group)
        self._outcomes.on_idle(self.group)

    def _tell(self, message: Message) -> object:
        target = self._exchange.channels.get(message.channel)
        if target is None:
            return UNANSWERED  # Unused for long, and evicted for newer channels.
        try:
            if not self.are_wanted(target) or self._heard(target, message) > DUPLICATE:
                target.metrics.count("published")
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            log.warning("%s: a listener raised at %s: %s", message.channel, message.id, described(error))
            for group in target.routes:
                wake_all(group)  # It may have kept the others from being woken.
        return UNANSWERED

    def _heard(self, target: Channel, message: Message) -> int:
        if target.bucket is None:
            return self._exchange.post(target, message)
        self._exchange.force(target, message)  # It has paid for its rate.
        return FULL


def _stored(pending: Pending[list[object]], messages: list[Message]) -> list[Message]:
    """Those of them that were stored: none after an error, and no duplicates."""
    if pending.error is not None:
        return []
    duplicates = [isinstance(each, SendResult) and each.duplicate for each in pending.value]
    return [message for message, duplicate in zip(messages, duplicates, strict=True) if not duplicate]
