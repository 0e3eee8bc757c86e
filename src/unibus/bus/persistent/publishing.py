# mypyc: compiled
"""Publishing to a persistent channel: rate limit, free places, store, listeners.

    publish ─▶ rate limit, free places ─▶ store.apply ─▶ durable ─▶ ListenerFanOut
                    │ full, and drop_policy is `block`
                    ▼
               PublishQueue ─▶ each settlement lets the first blocked publish try again

Invariant: everything is checked before anything is stored, so a rejected publish leaves no trace. Checks, `apply` and
the order of listeners are one step under `_deciding`: listeners get messages in the order in which the store has
decided. Messages that a protocol server sends to the topic of a channel take the same path, but never block.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from unibus.bus.persistent.free_places import FreePlaces
from unibus.bus.persistent.listeners import ListenerFanOut
from unibus.bus.persistent.publish_queue import BlockedPublish, BlockedResult, PublishQueue, queue_full
from unibus.bus.pubsub.channel import Channel
from unibus.bus.pubsub.exchange import Exchange, rate_limited
from unibus.bus.pubsub.registry import Registry
from unibus.bus.pubsub.wait_graph import WaitGraph
from unibus.bus.queues.operations import Queues
from unibus.bus.queues.transactions import Transaction, current
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import Send, SendResult
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.entity import SUBSCRIPTIONS, TOPIC
from unibus.errors import BusError, StoreFailed
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.pending import Pending, resolved
from unibus.threads import DaemonThread

T = TypeVar("T")

Publication = Pending[T] | BlockedResult[T]
"""The result of a publish: the store's answer, or one that waits for a free place first."""


class Publishing:
    """Stores publishes of one bus. All checks come before the store's apply: a rejected publish leaves no trace."""

    def __init__(
        self, queues: Queues, exchange: Exchange, registry: Registry, listeners: ListenerFanOut, graph: WaitGraph
    ) -> None:
        self._queues = queues
        self._exchange = exchange
        self._registry = registry
        self._listeners = listeners
        self._graph = graph
        self._places = FreePlaces(queues.store)
        # Held from the checks until the message has its position for listeners.
        self._deciding = self._places.lock
        self._publish_queues: dict[str, PublishQueue] = {}  # Changes under `_deciding`.

    def publish(self, target: Channel, messages: list[Message]) -> Publication[list[object]]:
        try:
            self._registry.check_open(f"published to {target.name!r}")
            commands = [_command(target, message) for message in messages]
            transaction = current(self._queues.store)
            if transaction is not None:
                return self._collect(transaction, target, messages, commands)
            if not commands:
                return resolved([])
            # While publishes are blocked a new one queues behind them, or it would overtake them. A batch of duplicates
            # needs no place, so it need not wait.
            queue = self._publish_queues.get(target.name) if target.waits and target.declared else None
            if queue is None or not queue.is_waiting() or not self._count_new(commands):
                pending = self._admit(target, messages, commands)
                if pending is not None:
                    return pending
            return self._block(target, messages, commands)
        except BusError as error:
            target.metrics.count_refusal(error, len(messages))
            raise

    def _admit(self, target: Channel, messages: list[Message], commands: list[Send]) -> Pending[list[object]] | None:
        """Store the messages. None if the channel is full."""
        # `apply` decides in memory and returns before the write: the lock is not held during any I/O. If the write
        # fails, the store stops, and what was counted here no longer matters.
        self._places.count(target, len(commands))
        with self._deciding:
            needed = self._needed(target, commands)
            self._check_rate(target, needed)
            if not self._places.has_space(target, needed):
                return None
            pending = self._queues.store.apply(commands)
            if not pending.is_accepted:
                return self._decided_later(target, messages, pending, needed)
            self._pay_stored(target, pending)
            unrouted = self._published(target, messages, pending)
        self._report(target, unrouted)  # Not under the lock: a log handler is code of the user.
        return pending

    def _decided_later(
        self, target: Channel, messages: list[Message], pending: Pending[list[object]], needed: int
    ) -> Pending[list[object]]:
        """The store is elsewhere. Pay now, so that the next publish finds neither a token nor a place that this one
        needs; what was not stored is refunded with the answer. Under `_deciding`: listeners keep the order of calls."""
        self._pay(target, needed, is_unanswered=True)
        self._listeners.begin_publish()
        follows = self._listeners.are_wanted(target)
        answered = pending.tap(lambda decided: self._answered(target, messages, decided, needed, follows))
        if follows:
            self._listeners.follow(answered, messages)
        return answered

    def _answered(
        self, target: Channel, messages: list[Message], pending: Pending[list[object]], needed: int, follows: bool
    ) -> None:
        error = pending.error
        results = [] if error is not None else [each for each in pending.value if isinstance(each, SendResult)]
        fresh = [each for each in results if not each.duplicate]
        for message, result in zip(messages, results, strict=False):
            message.sequence = result.sequence
            if result.duplicate:
                target.metrics.count("duplicate")
        if isinstance(error, BusError) and not isinstance(error, StoreFailed):
            target.metrics.count_refusal(error, len(messages))
        # After StoreFailed the messages may be stored: their places stay taken until the depth is read again.
        self._refund(target, needed, 0 if isinstance(error, StoreFailed) else max(0, needed - len(fresh)))
        try:
            if not follows:  # The fan-out counts the messages itself, when it posts them to the channel.
                self._report(target, _count(target, fresh))
        finally:  # A log handler is code of the user, and may raise.
            self._listeners.end_publish()

    def _refund(self, target: Channel, taken: int, unused: int) -> None:
        with self._deciding:
            if target.bucket is not None and unused:
                target.bucket.refund(unused)
            self._places.answered(target.name, taken, unused)

    def _collect(
        self, transaction: Transaction, target: Channel, messages: list[Message], commands: list[Send]
    ) -> Pending[list[object]]:
        """Inside a transaction: the messages are stored with its commit, and listeners get them after it."""
        self._places.count(target, len(commands))
        with self._deciding:
            needed = self._count_new(commands)
            self._check_rate(target, needed)
            if not self._places.has_space(target, needed):
                raise queue_full(target, messages)  # No blocking: only the end of this transaction may free a place.
            # Collected before it is paid: a transaction may refuse it, and a refused publish leaves no trace.
            results = [SendResult(target.name, 0, message.id, False) for message in messages]
            transaction.add_many(commands, results)
            # Paid now and not at the commit: the commit must not fail for a rate or a full channel, after the block has
            # ended.
            self._pay(target, needed)
            self._promise(target.name, needed)
        # The promise ends with a rollback, when the messages are counted as stored, and with an unknown outcome: then
        # the store counts them, if it has them.
        transaction.otherwise(lambda: self._promise(target.name, -needed), if_unknown=True)
        transaction.when_stored(lambda: self._promise(target.name, -needed))
        transaction.when_stored(
            lambda: self._report(target, self._published(target, messages, resolved(list(results))))
        )
        return resolved([])

    def _promise(self, channel: str, count: int) -> None:
        with self._deciding:
            self._places.promise(channel, count)

    def _needed(self, target: Channel, commands: list[Send]) -> int:
        """How many tokens and places the batch needs: duplicates need none.

        Duplicates are counted only if the whole batch would be rejected otherwise: that lookup is slow.
        """
        count = len(commands)
        bucket = target.bucket
        has_rate = bucket is None or bucket.has(count, self._exchange.monotonic_ns())
        return count if has_rate and self._places.has_space(target, count) else self._count_new(commands)

    def _count_new(self, commands: list[Send]) -> int:
        return self._queues.store.catalog.count_new(commands)

    def _check_rate(self, target: Channel, count: int) -> None:
        now_ns = self._exchange.monotonic_ns()
        bucket = target.bucket
        if bucket is not None and not bucket.has(count, now_ns):
            raise rate_limited(target.name, bucket.wait_s(count, now_ns))

    def _pay_stored(self, target: Channel, pending: Pending[list[object]]) -> None:
        """Spend tokens and places for the stored messages; a duplicate costs neither."""
        if target.bucket is not None or target.stored_max:
            stored = [each for each in pending.value or [] if isinstance(each, SendResult) and not each.duplicate]
            self._pay(target, len(stored))

    def _pay(self, target: Channel, count: int, *, is_unanswered: bool = False) -> None:
        if target.bucket is not None:
            target.bucket.try_acquire(count, self._exchange.monotonic_ns())
        self._places.take(target.name, count, is_unanswered=is_unanswered)

    def _published(self, target: Channel, messages: list[Message], pending: Pending[list[object]]) -> int:
        """Count the messages and pass them to listeners. Returns how many no subscriber takes."""
        fresh: list[SendResult] = []
        for message, result in zip(messages, pending.value or [], strict=False):  # A failed store gives no results.
            assert isinstance(result, SendResult)
            message.sequence = result.sequence
            if result.duplicate:
                target.metrics.count("duplicate")
            else:
                fresh.append(result)
        # The fan-out counts these messages itself, when it posts them to the channel.
        if fresh and self._listeners.are_wanted(target):
            self._listeners.follow(pending, messages)
            return 0
        return _count(target, fresh)

    def _report(self, target: Channel, unrouted: int) -> None:
        if unrouted and not target.is_unrouted_reported:
            self._registry.report_unrouted(target)

    def send(
        self, target: Channel, messages: list[Message], commands: list[Send], durability: Durability | None = None
    ) -> Pending[list[object]]:
        """Store messages that a protocol server sends to the topic of this channel: same rules, but never blocks."""
        try:
            self._places.count(target, len(commands))
            with self._deciding:
                needed = self._needed(target, commands)
                self._check_rate(target, needed)
                if not self._places.has_space(target, needed):
                    raise queue_full(target, messages)
                pending = self._queues.store.apply(commands, durability)
                if not pending.is_accepted:
                    return self._decided_later(target, messages, pending, needed)
                self._pay_stored(target, pending)
                if self._listeners.are_wanted(target):
                    self._listeners.follow(pending, messages)  # Under the lock: in the order of the store's decisions.
                    return pending
        except BusError as error:
            target.metrics.count_refusal(error, len(messages))
            raise
        call_when_done(pending, partial(self._count_sent, target))
        return pending

    def _count_sent(self, target: Channel, pending: Pending[list[object]]) -> None:
        sent = [each for each in (pending.value if pending.error is None else []) if isinstance(each, SendResult)]
        for _ in [each for each in sent if each.duplicate]:
            target.metrics.count("duplicate")
        self._report(target, _count(target, [each for each in sent if not each.duplicate]))

    # Backpressure

    def _block(self, target: Channel, messages: list[Message], commands: list[Send]) -> BlockedResult[list[object]]:
        timeout_s = self._registry.config_of(target.name).block_timeout
        blocks = target.waits and len(messages) <= target.stored_max and timeout_s != 0
        if not blocks:
            raise queue_full(target, messages)
        with self._deciding:
            queue = self._publish_queues.setdefault(target.name, PublishQueue(target, self._queues.timers, self._graph))
        # Set by the first blocked publish, and never removed: until then settlements pay nothing for this.
        self._queues.renewals.on_settled = self._on_settled
        blocked = BlockedPublish(messages, lambda: self._admit(target, messages, commands))
        queue.join(blocked, timeout_s)
        if self._exchange.closed:
            queue.close()  # close() may have passed before the join: no place becomes free, it would wait for ever.
        return BlockedResult(queue, blocked)

    def recount(self, channel: str) -> None:
        """The number of free places may have changed (new settings or groups): drop the allowance and try again."""
        with self._deciding:
            self._places.recount(channel)
        self.advance(channel)

    def advance(self, channel: str) -> None:
        queue = self._publish_queues.get(channel)
        if queue is None:
            return
        if not self._places.is_elsewhere:
            queue.advance()
        elif queue.is_waiting():
            # This thread may be the one that brings the answers, and counting the free places waits for an answer.
            DaemonThread(queue.advance, "unibus-blocked-publish").start()

    def _on_settled(self, entity: str) -> None:
        # In the thread that settles. `advance` therefore stores the next publish in the thread of a handler:
        # backpressure passes from the consumer to the publisher without a thread in between. A pump calls this twice,
        # when it ends the renewal and after the settlement; only the second call can find a free place.
        self.advance(entity.rpartition(f"/{SUBSCRIPTIONS}/")[0])

    def stop(self) -> None:
        for queue in list(self._publish_queues.values()):
            queue.close()


def call_when_done(pending: Pending[T], call: Callable[[Pending[T]], None]) -> None:
    """Call on the running loop, so that this forces no earlier commit; without a loop, in the committing thread."""
    loop = asyncio._get_running_loop()
    if loop is None or pending.done:
        pending.on_done(call)
    else:
        pending.then(loop, call)


def _count(target: Channel, fresh: list[SendResult]) -> int:
    """Count stored messages as published, unrouted or duplicate. Returns how many are unrouted."""
    unrouted = 0
    for result in fresh:
        if result.is_forwarded_duplicate:
            target.metrics.count("duplicate")
        else:
            target.metrics.count("published" if result.is_routed else "unrouted")
        unrouted += not result.is_routed
    return unrouted


def _command(target: Channel, message: Message) -> Send:
    """The command that stores a message; its TTL is at most that of the channel."""
    command = send_of(message, target.name)
    command.creates = TOPIC
    if target.ttl_ns and (command.ttl_ns == 0 or target.ttl_ns < command.ttl_ns):
        command.ttl_ns = target.ttl_ns
    return command
