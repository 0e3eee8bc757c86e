# mypyc: compiled
"""What both faces of the bus share: everything that never waits."""

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Unpack, cast, overload

from mypy_extensions import i64, mypyc_attr

from unibus.bus.api.runtime import BusFinalizer, BusRuntime
from unibus.bus.compat.backend_workers import BackendWorkers
from unibus.bus.compat.backends import MessageBackend
from unibus.bus.health import HealthStatus
from unibus.bus.names import checked_name
from unibus.bus.persistent.publish_path import PublishPath, cannot_persist
from unibus.bus.pubsub.backpressure import post_blocking
from unibus.bus.pubsub.channel import DUPLICATE, FULL, POLICY_BLOCK, Channel
from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.pubsub.subscription import Subscription
from unibus.bus.queues.transactions import Transaction, current
from unibus.bus.settings import BusConfig, ChannelConfig, SubscribeOptions, channel_config
from unibus.bus.store_url import sqlite_url, url_of
from unibus.bus.subscriptions.requests import Requests
from unibus.bus.subscriptions.subscriptions import (
    Decorated,
    check_option_names,
    checked_concurrency,
    checked_target,
    decorator,
    retry_policy,
)
from unibus.clock import Clock
from unibus.core.envelope.fields import set_fields
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import HeaderValue, MessageProperties
from unibus.core.envelope.payload import Payload
from unibus.core.flow.metrics import MetricsSnapshot
from unibus.core.lifecycle.events import Event
from unibus.core.topics.pattern import Pattern
from unibus.errors import (
    ConfigInvalid,
    HandlerInvalid,
    RequestTimeout,
    SerializationFailed,
    UsageError,
)
from unibus.limits import RETRY_ATTEMPTS_DEFAULT, RETRY_DELAY_S_DEFAULT, WORKER_COUNT_DEFAULT

log = logging.getLogger("unibus")

Handler = Callable[..., object]


@mypyc_attr(allow_interpreted_subclasses=True)
class BusOperations:
    """Channels, subscriptions and counters. `store` is a URL or a path, `memory://` when left out."""

    def __init__(
        self,
        store: object = None,
        *,
        persistence_path: object = None,
        worker_count: int = WORKER_COUNT_DEFAULT,
        strict: bool = False,
        idempotency_ttl: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        config = store if isinstance(store, BusConfig) else BusConfig(worker_count, strict, idempotency_ttl)
        backend = store if isinstance(store, MessageBackend) else None
        chosen = None if backend is not None or isinstance(store, BusConfig) else store
        if persistence_path is not None:
            if chosen is not None:
                raise UsageError("a bus has one store: give a URL or persistence_path", "leave one of them out")
            chosen = sqlite_url(str(persistence_path))
        place: object = chosen if is_store(chosen) else url_of(chosen)
        self._runtime = BusRuntime(config, clock)
        if place:
            self._runtime.open_store(place, persistence_path is None)
        self._workers = None if backend is None else BackendWorkers(backend, self._runtime.clock, random.random)
        self._exchange: Exchange = self._runtime.exchange
        if self._is_sync():
            self._runtime.places.adopts_loops = False
            if backend is not None:
                raise UsageError("a MessageBackend is async, this bus is not", "use the async MessageBus")
        self._requests = Requests(self._exchange, self._runtime.registry, self._runtime.subscriptions)
        self._leash = BusFinalizer(self._runtime)
        self._durable: PublishPath | None = self._runtime.durable
        self.degraded = ""  # Why messages are not kept as was asked for; empty when they are.

    def _is_sync(self) -> bool:
        return False

    # The first design's builders

    def with_persistence(self, persistence: object) -> "BusOperations":
        """Keep channels that are made `persistent` in this store: a path, a URL, or a store that is open."""
        if self._runtime.has_store() or self._durable is not None:
            raise UsageError("the bus has a store already, or is traced", "call this first")
        given: object = getattr(persistence, "store", persistence)  # A SqlitePersistence has one.
        self._runtime.open_store(given if is_store(given) else url_of(given) or "memory://", False)
        self._durable = self._runtime.durable
        return self

    def with_idempotency(self, ttl_seconds: float) -> "BusOperations":
        """Drop messages whose id or dedup key was accepted within that time. For channels made after the call."""
        self._runtime.set_idempotency(ttl_seconds)
        return self

    # Channels

    def create_channel(
        self, name: str, config: ChannelConfig | int | None = None, *, update: bool = False, **settings: object
    ) -> None:
        """Make a channel that keeps messages while nobody subscribes. Settings are those of ChannelConfig.

        The same settings again are no change; others raise ChannelExists unless `update=True`, which keeps the queue.
        """
        if isinstance(config, int):
            settings["max_queue_size"] = config
            config = None
        checked = channel_config(config, settings)
        self._check_new(name, checked)
        if self._durable is not None:
            self._durable.create(name, checked, update)
        elif checked.persistent:
            raise cannot_persist(name)
        self._runtime.registry.create(name, checked, update)

    def _check_new(self, name: object, config: ChannelConfig) -> None:
        """Refuse names that read as patterns before anything is created; see pattern_names.py."""
        patterns = self._runtime.registry.patterns
        patterns.check_new(checked_name(name))
        if config.dead_letter_channel is not None:
            patterns.check_new(config.dead_letter_channel)
        if not config.persistent:
            self._runtime.registry.names.check_channel(checked_name(name))

    def channels(self) -> list[str]:
        self._runtime.registry.check_process()
        return sorted(self._exchange.channels)

    def queue_size(self, channel: str) -> int | None:
        """Messages that wait on the channel; None for a channel that does not exist."""
        self._only_in_memory("tell its queue sizes")
        return self._runtime.queue_size(channel)

    def pop(self, channel: str) -> Message | None:
        """Take the next message by hand, for instance from a dead-letter queue. None when nothing waits."""
        self._only_in_memory("pop")
        return self._runtime.pop(channel)

    def dead_letters(self, channel: str) -> list[Message]:
        """A look at what waits in the dead-letter queue of a channel that named none of its own. Removes nothing."""
        self._only_in_memory("look at dead letters")
        return self._runtime.dead_letters(channel)

    def metrics(self, channel: str | None = None) -> dict[str, int | float]:
        """The six counters of the bus, or of one channel. `snapshot` tells more."""
        return self.snapshot(channel).as_dict()

    def snapshot(self, channel: str | None = None) -> MetricsSnapshot:
        """Every counter and latency, in total and by channel."""
        self._only_in_memory("count")
        return self._runtime.metrics(channel)

    def transaction(self, durability: object = None, connection: object = None) -> Transaction:
        """Sends and settlements inside of the block are one batch: all of them, or none. See transactions.py.

        With a `connection` of your own database its commit is theirs too: your rows and the messages, or neither.
        """
        if connection is not None:
            return self._runtime.outboxes().transaction(connection, durability)
        return self._runtime.queues().transaction(durability)

    def health_check(self) -> HealthStatus:
        """How the bus and its store are; "stopped" between `stop` and `start`. May be awaited, and need not."""
        return self._runtime.health(self.degraded)

    def events_after(self, seq: int = 0, limit: int = 1_000) -> tuple[list[Event], int]:
        """History: up to `limit` changes of durable messages after `seq`, and the seq up to which no more can appear.

        Go on after the last row that was given; when there was none, after the second value.
        """
        return self._runtime.queues().store.history.events_after(seq, limit)

    def cursor(self, name: str) -> int:
        """Where a named reader of history stands, across restarts: the seq to go on after. 0 for one that is new."""
        return self._runtime.queues().store.history.cursor(name)

    def move_cursor(self, name: str, seq: object) -> None:
        """Remember that the reader has everything up to `seq`."""
        if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq < 2**63:
            raise UsageError(f"a cursor stands at a seq, not at {seq!r}", "the last one that the reader has")
        self._runtime.queues().store.history.move_cursor(checked_name(name), seq)

    def missed_events(self, name: str) -> int:
        """How many events were forgotten before the reader had read them: history is kept for a time only."""
        return self._runtime.queues().store.history.missed(name)

    # Subscriptions

    @overload
    def subscribe(
        self,
        channel: str | Pattern,
        handler: None = None,
        retry_attempts: int = ...,
        retry_delay: float | None = ...,
        concurrency: int = ...,
        **options: Unpack[SubscribeOptions],
    ) -> Callable[[Decorated], Decorated]: ...

    @overload
    def subscribe(
        self,
        channel: str | Pattern,
        handler: Handler,
        retry_attempts: int = ...,
        retry_delay: float | None = ...,
        concurrency: int = ...,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription: ...

    @overload
    def subscribe(
        self, channel: str | Pattern, handler: str, retry_attempts: Handler, **options: Unpack[SubscribeOptions]
    ) -> Subscription: ...

    def subscribe(
        self,
        channel: object,  # Not a str or Pattern: compiled code would raise TypeError before it is checked.
        handler: Handler | str | None = None,
        retry_attempts: int | Handler = RETRY_ATTEMPTS_DEFAULT,
        retry_delay: float | None = RETRY_DELAY_S_DEFAULT,
        concurrency: object = 1,  # Not an int: compiled code would convert what is none before it is checked.
        **options: object,
    ) -> object:
        """Hand every message of the channel to the handler. See SubscribeOptions for the rest.

        A name in which a whole token is `*`, or the last one `#` or `>`, is a pattern unless such a channel exists.
        With a handler it gives a Subscription, which may be awaited; without one it is a decorator, which gives the
        handler back unchanged. `subscribe(channel, "module", callback)` is the first design's form.
        """
        check_option_names(options)
        slots = checked_concurrency(concurrency)
        chosen = cast(SubscribeOptions, options)
        target = self._runtime.registry.patterns.read(checked_target(channel, handler), chosen)
        if isinstance(handler, str):
            return self._subscribe_module(target, handler, retry_attempts, retry_delay, slots, chosen)
        if isinstance(retry_attempts, bool) or not isinstance(retry_attempts, int):
            raise UsageError(f"retry_attempts {retry_attempts!r} is not a whole number")
        policy = retry_policy(retry_attempts, RETRY_DELAY_S_DEFAULT if retry_delay is None else retry_delay, chosen)
        add = self._subscriber(target, chosen)
        if handler is None:
            return decorator(add, target, policy, slots, chosen)
        return add(target, handler, policy, slots, chosen)

    def _subscriber(self, channel: str | Pattern, options: SubscribeOptions) -> Callable[..., Subscription]:
        """Who takes a subscription: a backend, the store, or the bus in memory."""
        self._runtime.registry.check_process()
        if self._workers is not None:
            return cast("Callable[..., Subscription]", self._workers.subscribe)
        if self._durable is not None and self._durable.wants(channel, options):
            return self._durable.subscribe
        for name in ("start", "idempotent"):
            if name in options:
                raise ConfigInvalid(f"{name} is for persistent channels", "give the bus a store, or leave it out")
        return self._runtime.subscriptions.add

    def _subscribe_module(
        self,
        channel: str | Pattern,
        module: str,
        callback: object,
        retry_delay: float | None,
        concurrency: int,
        options: SubscribeOptions,
    ) -> Subscription:
        if not callable(callback):
            raise HandlerInvalid(
                "subscribe(channel, module, callback) needs a callback",
                "the handler is the third argument in this form",
            )
        self._only_in_memory("subscribe a module")
        delay_s = RETRY_DELAY_S_DEFAULT if retry_delay is None else retry_delay
        policy = retry_policy(RETRY_ATTEMPTS_DEFAULT, delay_s, options)
        add = self._subscriber(channel, options)
        return add(channel, callback, policy, concurrency, options, module)

    def unsubscribe(self, subscription: object) -> bool:
        """Cancel by Subscription or by id; by handler, channel or pattern all that have it. False if there is none."""
        self._runtime.registry.check_process()
        if self._workers is not None:
            return self._workers.unsubscribe(subscription)
        found = self._durable is not None and self._durable.unsubscribe(subscription)
        return self._runtime.unsubscribe(subscription) or found

    def start(self, worker_count: int | None = None) -> None:
        """Go on after `stop`. A bus starts by itself; a second start changes nothing."""
        self._runtime.start(worker_count)

    def _check_listened(self, message: Message) -> None:
        """A request that nobody can answer fails at once instead of at its time-out."""
        if self._exchange.transactions and current(self._runtime.queues().store) is not None:
            raise UsageError("a request inside of a transaction would wait for its own end", "ask before it, or after")
        kept = self._durable is not None and self._durable.is_listened_to(message.channel)
        if not kept and not self._exchange.is_listened_to(message.channel):
            raise RequestTimeout(
                f"no reply can come: nobody is subscribed to {message.channel!r}",
                "subscribe a handler that returns a value",
            )

    def _only_in_memory(self, what: str) -> None:
        """Refuse what a bus on a MessageBackend cannot do: its messages are not here."""
        if self._workers is not None:
            raise UsageError(f"a bus on a backend cannot {what}", "ask the backend, or use the bus in memory")

    # Shared by both ways of publishing

    def _message(
        self, channel: object, payload: object, priority: object, properties: MessageProperties | None
    ) -> Message:
        """The envelope for a publish. A Message that is published again gets a fresh one, with the same id."""
        if isinstance(channel, Message):
            if payload is not None or priority is not None or properties is not None:
                raise UsageError(
                    "publish(message) takes nothing beside the message",
                    "set it on the message: message.with_priority(…), message.with_headers(…)",
                )
            self._exchange.check_size(channel.channel, channel.body)
            if channel.properties is not None and channel.properties.scheduled_at_ns:
                raise cannot_schedule()
            return channel if channel.take() else channel.fresh()
        if not isinstance(channel, str):
            raise UsageError(f"a channel is named by text, not {type(channel).__name__}")
        return self._exchange.envelope(self._exchange.channel(channel), payload, priority, properties)

    def _publish_blocking(self, message: Message, may_block: bool) -> Message:
        target = self._exchange.channel(message.channel)
        if self._durable is not None and self._durable.takes(target.name):
            return self._durable.publish_now(target, message, may_block)
        if self._exchange.transactions and self._put_off(target, [message]):
            return message
        verdict = self._exchange.post(target, message)
        if verdict == FULL and target.policy == POLICY_BLOCK:
            self._post_blocking(target, [message], may_block)
        elif verdict > DUPLICATE:
            raise self._exchange.refusal(target, message, verdict)
        return message

    def _put_off(self, target: Channel, messages: list[Message]) -> bool:
        """Inside of a transaction: publish once it is committed. False when there is none."""
        transaction = current(self._runtime.queues().store)
        if transaction is None:
            return False
        transaction.afterwards(lambda: self._post_late(target, messages))
        return True

    def _post_late(self, target: Channel, messages: list[Message]) -> None:
        """What is refused now can only be counted and told: the transaction stands."""
        verdict = self._exchange.post_many(target, messages, True)
        if verdict > DUPLICATE:
            log.warning("after the commit: %s", self._exchange.refusal(target, one_or_all(messages), verdict))

    def _post_blocking(self, target: Channel, messages: list[Message], may_block: bool) -> None:
        """Wait for room, unless that would block an event loop."""
        verdict: i64 = FULL
        if not may_block:
            verdict = self._exchange.post_many(target, messages, True)
        elif len(messages) <= target.max_size:
            timeout_s = self._runtime.registry.config_of(target.name).block_timeout
            verdict = post_blocking(self._exchange, target, messages, timeout_s)
        if verdict > DUPLICATE:
            raise self._exchange.refusal(target, one_or_all(messages), verdict)

    # Written as parameters and not as **fields, which a compiled method takes a hundred nanoseconds to collect.
    def _properties(
        self,
        trace_id: object,
        headers: Mapping[str, HeaderValue] | None,
        correlation_id: object,
        ttl: object,
        dedup_key: object,
        fields: Mapping[str, object] | None,
    ) -> MessageProperties | None:
        """The cold part from keywords, or None; what is wrong with them is counted and raised.

        Keywords of users are objects here and in the calls that take them: with a narrower type the compiled form
        raises TypeError before it can be checked, named and counted.
        """
        given: dict[str, object] = dict(fields) if fields is not None else {}
        named: dict[str, object] = {
            "trace_id": trace_id,
            "headers": headers,
            "correlation_id": correlation_id,
            "ttl": ttl,
            "dedup_key": dedup_key,
        }
        for name, value in named.items():
            if value is not None:
                given[name] = value
        return self._properties_of(given)

    def _properties_of(self, fields: dict[str, object]) -> MessageProperties | None:
        if not fields:
            return None
        properties = MessageProperties()
        try:
            if fields.get("delay") is not None:
                raise cannot_schedule()
            set_fields(properties, fields)
            if properties.scheduled_at_ns:
                raise cannot_schedule()
        except UsageError as error:
            self._exchange.refused.count_refusal(error, 1)
            raise
        return properties

    def _refused_delay(self) -> UsageError:
        """For a publish with a `delay`, which only `send` has."""
        error = cannot_schedule()
        self._exchange.refused.count_refusal(error, 1)
        return error

    def _json(self, value: object) -> Payload:
        try:
            return Payload.json(value)
        except SerializationFailed as error:
            self._exchange.refused.count_refusal(error, 1)
            raise

    def _messages(
        self, channel: str, payloads: list[object], priority: object, properties: MessageProperties | None
    ) -> list[Message]:
        target = self._exchange.channel(channel)
        return [self._exchange.envelope(target, payload, priority, properties) for payload in payloads]


def one_or_all(messages: list[Message]) -> object:
    """What a refusal gives back: the message, or the list of them."""
    return messages[0] if len(messages) == 1 else messages


def cannot_schedule() -> UsageError:
    return UsageError(
        "publish delivers at once and cannot schedule",
        "use send(queue, payload, delay=…) or schedule(queue, payload, at), which store the message until then",
    )


def is_store(value: object) -> bool:
    """An open store, of ours or of somebody else's."""
    return hasattr(value, "apply") and hasattr(value, "claim") and hasattr(value, "watch")


def several(payloads: Iterable[object]) -> list[object]:
    """The payloads of publish_many. One text or one bytes is a mistake: its letters would be published."""
    if isinstance(payloads, (str, bytes)):
        raise UsageError("publish_many takes several payloads, not one text", "use publish, or put it into a list")
    return list(payloads)
