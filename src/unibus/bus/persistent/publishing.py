# mypyc: compiled
"""The way of a publish into a persistent channel: rate, room, store, and those who only listen.

    publish ─▶ rate, room ─▶ store ─▶ answer ─▶ those who only listen
                    │ none, and the policy is `block`
                    ▼
                  Line ─▶ whatever settles a message lets the first one try again

Everything is looked at before anything is stored, so that a refusal leaves no trace. What a protocol server sends to
the topic of a channel comes the same way, but never waits for room.
"""

import asyncio
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from unibus.bus.persistent.listeners import ListenerFanOut
from unibus.bus.persistent.publish_queue import BlockedPublish, BlockedResult, PublishQueue, queue_full
from unibus.bus.pubsub.channel import Channel
from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.pubsub.registry import Registry
from unibus.bus.queues.operations import Queues
from unibus.bus.queues.transactions import Transaction, current
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import Send, SendResult
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.entity import KIND_NAMES, SUBSCRIPTION, SUBSCRIPTIONS, TOPIC
from unibus.errors import BusError, RateLimited
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.pending import Pending, resolved
from unibus.stores.seam.store import EntityInfo, Store

T = TypeVar("T")
_ALL: Final = 2**31

Publication = Pending[T] | BlockedResult[T]
"""What a publish gives: the store's answer, or one that waits for room first."""


class Publishing:
    """The way into the store: all is looked at before anything is stored, and a refusal leaves no trace."""

    def __init__(self, queues: Queues, exchange: Exchange, registry: Registry, listeners: ListenerFanOut) -> None:
        self._queues = queues
        self._exchange = exchange
        self._registry = registry
        self._listeners = listeners
        self._deciding = threading.RLock()  # From the look at rate and room to the place among the echoes.
        # So many messages a channel holds, at most; counted again when they leave no place. Compared with the bound of
        # the moment, so that a new one holds at once.
        self._held: dict[str, int] = {}
        self._promised: dict[str, int] = {}  # So many stand in transactions that are open.
        self._lines: dict[str, PublishQueue] = {}

    def publish(self, target: Channel, messages: list[Message]) -> Publication[list[object]]:
        try:
            self._registry.check_open(f"published to {target.name!r}")
            commands = [_command(target, message) for message in messages]
            transaction = current(self._queues.store)
            if transaction is not None:
                return self._collect(transaction, target, messages, commands)
            if not commands:
                return resolved([])
            line = self._lines.get(target.name) if target.waits else None
            if line is None or not line.is_waiting() or not self._count_new(commands):
                pending = self._admit(target, messages, commands)
                if pending is not None:
                    return pending
            return self._stand_in_line(target, messages, commands)
        except BusError as error:
            target.metrics.count_refusal(error, len(messages))
            raise

    def _admit(self, target: Channel, messages: list[Message], commands: list[Send]) -> Pending[list[object]] | None:
        """Store them. None where there is no room."""
        with self._deciding:
            needed = self._needed(target, commands)
            self._check_rate(target, needed)
            if not self._has_room(target, needed):
                return None
            pending = self._queues.store.apply(commands)
            self._pay_stored(target, pending)
            unrouted = self._published(target, messages, pending)
        self._report(target, unrouted)  # Not under the lock: a handler of the log is code of the user's.
        return pending

    def _collect(
        self, transaction: Transaction, target: Channel, messages: list[Message], commands: list[Send]
    ) -> Pending[list[object]]:
        """Inside of a transaction: stored with it, and heard by those who only listen once it is committed."""
        with self._deciding:
            needed = self._count_new(commands)
            self._check_rate(target, needed)
            if not self._has_room(target, needed):
                raise queue_full(target, messages)  # It cannot wait: room may be made by its own end only.
            self._pay(target, needed)
            self._promise(target.name, needed)
        results = [SendResult(target.name, 0, message.id, False) for message in messages]
        for command, result in zip(commands, results, strict=True):
            transaction.add(command, result)
        transaction.otherwise(lambda: self._promise(target.name, -needed))
        transaction.when_stored(lambda: self._promise(target.name, -needed))
        transaction.when_stored(
            lambda: self._report(target, self._published(target, messages, resolved(list(results))))
        )
        return resolved([])

    def _promise(self, channel: str, count: int) -> None:
        with self._deciding:
            self._promised[channel] = self._promised.get(channel, 0) + count

    def _needed(self, target: Channel, commands: list[Send]) -> int:
        """For how many of them there has to be rate and room: duplicates need none.

        Duplicate detection is asked only where all of them together would be refused.
        """
        count = len(commands)
        bucket = target.bucket
        has_rate = bucket is None or bucket.has(count, self._exchange.monotonic_ns())
        return count if has_rate and self._has_room(target, count) else self._count_new(commands)

    def _count_new(self, commands: list[Send]) -> int:
        return self._queues.store.catalog.count_new(commands)

    def _check_rate(self, target: Channel, count: int) -> None:
        now_ns = self._exchange.monotonic_ns()
        bucket = target.bucket
        if bucket is not None and not bucket.has(count, now_ns):
            wait_s = bucket.wait_s(count, now_ns)
            hint = (
                f"try again in {wait_s:.3f} s" if math.isfinite(wait_s) else "more than its burst: send fewer at once"
            )
            raise RateLimited(f"channel {target.name!r} is over its rate", hint, wait_s)

    def _has_room(self, target: Channel, count: int) -> bool:
        if not target.stored_max or not count:
            return True
        held = self._held.get(target.name)
        if held is None or held + count > target.stored_max:
            groups = groups_of(self._queues.store, target.name)
            held = max([unsettled(info) for info in groups], default=0) + self._promised.get(target.name, 0)
            self._held[target.name] = held
        return held + count <= target.stored_max

    def _pay_stored(self, target: Channel, pending: Pending[list[object]]) -> None:
        """For what was stored: a duplicate spends neither rate nor room."""
        if target.bucket is not None or target.stored_max:
            stored = [each for each in pending.value or [] if isinstance(each, SendResult) and not each.duplicate]
            self._pay(target, len(stored))

    def _pay(self, target: Channel, count: int) -> None:
        if target.bucket is not None:
            target.bucket.try_acquire(count, self._exchange.monotonic_ns())
        if target.name in self._held:
            self._held[target.name] += count

    def _published(self, target: Channel, messages: list[Message], pending: Pending[list[object]]) -> int:
        """Count them, and let listeners hear them. Gives how many no subscriber takes."""
        fresh: list[SendResult] = []
        for message, result in zip(messages, pending.value or [], strict=False):  # A store that failed gives none.
            assert isinstance(result, SendResult)
            message.sequence = result.sequence
            if result.duplicate:
                target.metrics.count("duplicate")
            else:
                fresh.append(result)
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
        """Store what a protocol server sends to the topic of this channel: by the same rules, but never waiting."""
        try:
            with self._deciding:
                needed = self._needed(target, commands)
                self._check_rate(target, needed)
                if not self._has_room(target, needed):
                    raise queue_full(target, messages)
                pending = self._queues.store.apply(commands, durability)
                self._pay_stored(target, pending)
                if self._listeners.are_wanted(target):
                    self._listeners.follow(pending, messages)  # In the order of decisions: under the same lock.
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

    # Room

    def _stand_in_line(
        self, target: Channel, messages: list[Message], commands: list[Send]
    ) -> BlockedResult[list[object]]:
        timeout_s = self._registry.config_of(target.name).block_timeout
        blocks = target.waits and len(messages) <= target.stored_max and timeout_s != 0
        if not blocks:
            raise queue_full(target, messages)
        with self._deciding:
            line = self._lines.setdefault(target.name, PublishQueue(target, self._queues.timers))
        self._queues.renewals.on_settled = self._on_settled
        place = BlockedPublish(messages, lambda: self._admit(target, messages, commands))
        line.join(place, timeout_s)
        if self._exchange.closed:
            line.close()  # Nobody makes room any more, and whoever closed the bus may not have seen it.
        return BlockedResult(line, place)

    def recount(self, channel: str) -> None:
        """How much room there is may have changed: other settings, or a group that is new."""
        with self._deciding:
            self._held.pop(channel, None)
        self.made_room(channel)

    def made_room(self, channel: str) -> None:
        line = self._lines.get(channel)
        if line is not None:
            line.advance()

    def _on_settled(self, entity: str) -> None:
        self.made_room(entity.rpartition(f"/{SUBSCRIPTIONS}/")[0])

    def stop(self) -> None:
        for line in list(self._lines.values()):
            line.close()


def call_when_done(pending: Pending[T], call: Callable[[Pending[T]], None]) -> None:
    """On the running loop, so that nothing is committed earlier for this; without a loop in the thread that commits."""
    loop = asyncio._get_running_loop()
    if loop is None or pending.done:
        pending.on_done(call)
    else:
        pending.then(loop, call)


def _count(target: Channel, fresh: list[SendResult]) -> int:
    """What the store has taken for a group, or for the first one, and what no group takes. Gives the latter."""
    unrouted = 0
    for result in fresh:
        if result.is_forwarded_duplicate:
            target.metrics.count("duplicate")
        else:
            target.metrics.count("published" if result.is_routed else "unrouted")
        unrouted += not result.is_routed
    return unrouted


def _command(target: Channel, message: Message) -> Send:
    """What stores a message, no longer than its channel allows."""
    command = send_of(message, target.name)
    command.makes = TOPIC
    if target.ttl_ns and (command.ttl_ns == 0 or target.ttl_ns < command.ttl_ns):
        command.ttl_ns = target.ttl_ns
    return command


def groups_of(store: Store, channel: str) -> list[EntityInfo]:
    """The durable subscriptions of a channel; the channel itself as long as it has none, and keeps."""
    catalog = store.catalog
    topic = catalog.find(channel)
    if topic is None or topic.name != channel:
        return []
    groups = catalog.page(SUBSCRIPTION, channel, 0, _ALL).wait() if topic.kind == TOPIC else []
    own = catalog.entity(channel).wait()
    return groups or ([] if own is None else [own])


def unsettled(info: EntityInfo) -> int:
    """What a group has not settled yet. What a channel keeps waits for its first group; what is scheduled does not."""
    if info.kind == KIND_NAMES[TOPIC]:
        return info.active
    return info.active + info.locked + info.scheduled + info.deferred
