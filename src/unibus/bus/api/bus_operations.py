# mypyc: compiled
"""The common base of MessageBus and SyncMessageBus: all operations that never wait.

The two API classes add only how to wait (await, or block the thread). The state is in BusRuntime (runtime.py).
Parameters from users are typed `object` where compiled code would otherwise raise a TypeError before our own check can
raise a named error with a hint.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Never, Unpack, cast, overload

from mypy_extensions import i64, mypyc_attr

from unibus.bus.api.runtime import BusFinalizer, BusRuntime
from unibus.bus.compat.backend_workers import BackendWorkers
from unibus.bus.compat.backends import MessageBackend
from unibus.bus.health import HealthStatus
from unibus.bus.mistaken_keywords import CONSTRUCTOR, SCHEDULE, unknown_keyword
from unibus.bus.names import checked_name
from unibus.bus.persistent.publish_path import PublishPath, cannot_persist
from unibus.bus.pubsub.backpressure import on_a_loop, one_or_all
from unibus.bus.pubsub.channel import DUPLICATE, FULL, Channel
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
from unibus.display import described
from unibus.errors import (
    ConfigInvalid,
    HandlerInvalid,
    RequestTimeout,
    SerializationFailed,
    UsageError,
)
from unibus.limits import RETRY_ATTEMPTS_DEFAULT, RETRY_DELAY_S_DEFAULT, WORKER_COUNT_DEFAULT
from unibus.safe_log import SafeLogger
from unibus.stores.seam.store import Store

log = SafeLogger("unibus")

Handler = Callable[..., object]


@mypyc_attr(allow_interpreted_subclasses=True)
class BusOperations:
    """Channels, subscriptions, metrics, history.

    `store` is a URL (`sqlite:///bus.db`), a path or an open store; without it messages are in memory. `strict`:
    channels and queues must be created before use. `idempotency_ttl`: the dedup window of all channels in seconds.
    """

    def __init__(
        self,
        store: object = None,
        *,
        persistence_path: object = None,
        worker_count: int = WORKER_COUNT_DEFAULT,
        strict: bool = False,
        idempotency_ttl: float | None = None,
        clock: Clock | None = None,
        **unknown: Never,  # So a type checker still refuses every other keyword.
    ) -> None:
        if unknown:
            raise unknown_keyword(type(self).__name__, next(iter(unknown)), CONSTRUCTOR)
        # The first argument has four meanings: a BusConfig, a MessageBackend, an open store, or a URL or path.
        config = store if isinstance(store, BusConfig) else BusConfig(worker_count, strict, idempotency_ttl)
        backend = store if isinstance(store, MessageBackend) else None
        chosen = None if backend is not None or isinstance(store, BusConfig) else store
        if persistence_path is not None:
            if chosen is not None or backend is not None:
                raise UsageError(
                    "a bus has one store, but both a store and persistence_path were given", "leave one of them out"
                )
            chosen = sqlite_url(str(persistence_path))
        # Before the runtime exists: a bad URL raises without any thread, timer or file to release.
        place: object = chosen if isinstance(chosen, Store) else url_of(chosen)
        self._runtime = BusRuntime(config, clock)
        if place:
            # With persistence_path only channels that ask for it are persistent; with a store all are.
            self._runtime.open_store(place, persistence_path is None)
        self._exchange: Exchange = self._runtime.exchange
        self._workers: BackendWorkers | None = None
        if backend is not None:
            feedback = self._exchange.feedback
            self._workers = BackendWorkers(backend, self._runtime.clock, random.random, feedback)
        if self._is_sync():
            # A sync bus never runs handlers on the loop of its caller: a blocking `close` or `request` on that loop
            # would wait for a handler that the loop cannot run.
            self._runtime.executors.adopts_loops = False
            if backend is not None:
                raise UsageError(
                    "SyncMessageBus cannot use a MessageBackend, which is async", "use the async MessageBus"
                )
        self._requests = Requests(self._exchange, self._runtime.registry, self._runtime.subscriptions)
        # Only this object refers to it, so it is finalized with the last reference of the user. The runtime lives
        # longer: its parts refer to it by callbacks.
        self._leash = BusFinalizer(self._runtime)
        self._durable: PublishPath | None = self._runtime.durable
        self.degraded = ""  # Why the requested store is not used; empty if it is.

    def _is_sync(self) -> bool:
        return False

    def __repr__(self) -> str:
        return described(self, lambda: self._runtime.describe())

    # Builders: MessageBus().with_persistence(…).with_idempotency(…)

    def with_persistence(self, persistence: object) -> "BusOperations":
        """Store `persistent=True` channels in this store: a path, a URL, or an open store. Returns the bus."""
        # A traced bus has a PublishPath also without a store. The line below would replace it, and persistent channels
        # would not be traced.
        if self._runtime.has_store() or self._durable is not None:
            raise UsageError(
                "with_persistence() is too late: the bus has a store already, or is traced",
                "call with_persistence() first, right after MessageBus()",
            )
        from unibus.bus.compat.persistence import SqlitePersistence  # Here: few programs use it.

        given: object = persistence.store if isinstance(persistence, SqlitePersistence) else persistence
        self._runtime.open_store(given if isinstance(given, Store) else url_of(given) or "memory://", False)
        self._durable = self._runtime.durable
        return self

    def with_idempotency(self, ttl_seconds: float) -> "BusOperations":
        """Give channels that are created from now on a dedup window: an id or dedup key is accepted once in it."""
        self._runtime.set_idempotency(ttl_seconds)
        return self

    # Channels

    def create_channel(
        self, name: str, config: ChannelConfig | int | None = None, *, update: bool = False, **settings: object
    ) -> None:
        """Create a channel, which keeps messages for its first subscriber. Settings are those of ChannelConfig.

            bus.create_channel("orders", max_queue_size=1_000, drop_policy="drop_old")

        A full channel rejects new messages (`drop_new`), evicts the oldest of the least urgent ones (`drop_old`), or
        makes publishers wait (`block`, at most `block_timeout` seconds). Idempotent for the same settings; other
        settings raise ChannelExists unless `update=True`, which keeps the messages. Raises NameInvalid, ConfigInvalid,
        EntityExists or StoreUnavailable.
        """
        if isinstance(config, int):
            settings["max_queue_size"] = config
            config = None
        checked = channel_config(config, settings)
        self._check_new(name, checked)
        # The topic in the store first: if the store rejects it, no channel is left in memory that looks persistent.
        if self._durable is not None:
            self._durable.create(name, checked, update)
        elif checked.persistent:
            raise cannot_persist(name)
        self._runtime.registry.create(name, checked, update)
        if self._runtime.durable is not None:
            self._runtime.durable.recount(name)  # Not before the new settings hold.

    def _check_new(self, name: object, config: ChannelConfig) -> None:
        """Raise for names that look like patterns, before anything is created; see pattern_names.py."""
        patterns = self._runtime.registry.patterns
        patterns.check_new(checked_name(name))
        if config.dead_letter_channel is not None:
            patterns.check_new(config.dead_letter_channel)
        # A persistent channel is a topic of the store, so the store itself rejects a name that another entity has.
        if not config.persistent:
            self._runtime.registry.names.check_channel(checked_name(name))

    def channels(self) -> list[str]:
        """The names of all channels, sorted."""
        self._runtime.registry.check_process()
        return sorted(self._exchange.channels)

    def queue_size(self, channel: str) -> int | None:
        """The backlog of the channel: of its fullest group. None for a channel that does not exist."""
        self._only_in_memory("report queue sizes")
        return self._runtime.queue_size(channel)

    def pop(self, channel: str) -> Message | None:
        """Remove and return the next message, for instance of a dead-letter queue. None if none waits."""
        self._only_in_memory("pop")
        return self._runtime.pop(channel)

    def dead_letters(self, channel: str = "") -> list[Message]:
        """The messages in `<channel>/$DeadLetterQueue`, of a channel without dead_letter_channel. Removes nothing.

        Also of a channel in memory, whose dead-lettered messages `dead_letter_queue()` does not have.
        """
        if not channel:
            raise UsageError(
                "dead_letters() needs the name of a channel",
                "write dead_letters('orders'); dead_letter_queue().list_messages() lists all of the store",
            )
        self._only_in_memory("list dead-lettered messages")
        return self._runtime.dead_letters(channel)

    def metrics(self, channel: str | None = None) -> dict[str, int | float]:
        """The six main counters of the bus, or of one channel. `snapshot` has all of them."""
        return self.snapshot(channel).as_dict()

    def snapshot(self, channel: str | None = None) -> MetricsSnapshot:
        """All counters and latencies, in total and by channel. Raises ChannelNotFound."""
        self._only_in_memory("count messages")
        return self._runtime.metrics(channel)

    def transaction(self, durability: object = None, connection: object = None) -> Transaction:
        """A transaction: sends and settlements inside the block are applied as one batch, all or none.

            with bus.transaction():
                bus.send("invoices", invoice)
                message.complete()

        With the `connection` of your own database, the messages are committed with it (outbox): your rows and the
        messages, or neither.
        """
        if connection is not None:
            return self._runtime.outboxes().transaction(connection, durability)
        return self._runtime.queues().transaction(durability)

    def health_check(self) -> HealthStatus:
        """The health of the bus and its store; "stopped" between `stop` and `start`. May be awaited or not."""
        return self._runtime.health(self.degraded)

    def events_after(self, seq: int = 0, limit: int = 1_000) -> tuple[list[Event], int]:
        """History: up to `limit` changes of durable messages after `seq`, and a seq up to which no more can appear.

        Continue after the last row; if there was none, after the second value.
        """
        return self._runtime.queues().store.history.events_after(seq, limit)

    def cursor(self, name: str) -> int:
        """The stored position of a named reader of history: the seq to continue after. 0 for a new reader."""
        return self._runtime.queues().store.history.cursor(name)

    def move_cursor(self, name: str, seq: object) -> None:
        """Store that the reader has read everything up to `seq`."""
        # A bool is an int in Python, and True would silently become position 1. 2**63: stores keep it in 64 bits.
        if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq < 2**63:
            raise UsageError(
                f"the position of a cursor must be a whole number of 0 or more, got {seq!r}",
                "pass the seq of the last event that was read",
            )
        self._runtime.queues().store.history.move_cursor(checked_name(name), seq)

    def missed_events(self, name: str) -> int:
        """How many events after the cursor of the reader retention removed. Ask before `move_cursor`."""
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
        """Deliver every message of the channel to the handler.

            bus.subscribe("orders", handle, retry_attempts=5, group="billing")

        Returns a Subscription, which may be awaited. Without a handler it is a decorator: `@bus.subscribe("orders")`.
        The options are those of SubscribeOptions. A name in which a whole token is `*`, or the last one `#` or `>`, is
        a pattern, unless a channel of that name exists. `subscribe(channel, "module", callback)` is also accepted.
        Raises HandlerInvalid, ConfigInvalid, NameInvalid, EntityExists or BusClosed, before anything is changed.
        """
        # Everything that needs no handler is checked before a decorator is returned: the mistake raises where the
        # options are.
        check_option_names(options)
        slots = checked_concurrency(concurrency)
        chosen = cast(SubscribeOptions, options)
        target = self._runtime.registry.patterns.read(checked_target(channel, handler), chosen)
        if isinstance(handler, str):
            return self._subscribe_module(target, handler, retry_attempts, retry_delay, slots, chosen)
        if isinstance(retry_attempts, bool) or not isinstance(retry_attempts, int):
            raise UsageError(f"retry_attempts must be a whole number, not {retry_attempts!r}")
        policy = retry_policy(retry_attempts, RETRY_DELAY_S_DEFAULT if retry_delay is None else retry_delay, chosen)
        add = self._subscriber(target, chosen)
        if handler is None:
            return decorator(add, target, policy, slots, chosen)
        return add(target, handler, policy, slots, chosen)

    def _subscriber(self, channel: str | Pattern, options: SubscribeOptions) -> Callable[..., Subscription]:
        """The method that adds the subscription: of a backend, of the persistent channels, or in memory."""
        self._runtime.registry.check_process()
        if self._workers is not None:
            return cast("Callable[..., Subscription]", self._workers.subscribe)
        if self._durable is not None and self._durable.wants(channel, options):
            return self._durable.subscribe
        for name in ("start", "idempotent"):
            if name in options:
                raise ConfigInvalid(
                    f"option {name!r} is for persistent channels only", "open the bus with a store, or leave it out"
                )
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
                f"the handler for {channel!r} must be a function, got {module!r:.80}",
                "pass the function itself: subscribe(channel, handler), or subscribe(channel, module, handler)",
            )
        self._only_in_memory("subscribe a module")
        delay_s = RETRY_DELAY_S_DEFAULT if retry_delay is None else retry_delay
        policy = retry_policy(RETRY_ATTEMPTS_DEFAULT, delay_s, options)
        add = self._subscriber(channel, options)
        return add(channel, callback, policy, concurrency, options, module)

    def unsubscribe(self, subscription: object) -> bool:
        """Cancel a subscription by its handle or id, or all of a handler, channel or pattern. False if none exists."""
        self._runtime.registry.check_process()
        if self._workers is not None:
            return self._workers.unsubscribe(subscription)
        # Both are asked, and not the second only if the first finds nothing: a handler may be subscribed to a
        # persistent channel and to one in memory.
        found = self._durable is not None and self._durable.unsubscribe(subscription)
        return self._runtime.unsubscribe(subscription) or found

    def start(self, worker_count: int | None = None) -> None:
        """Deliver again after `stop`. A new bus is started already; a second start has no effect."""
        self._runtime.start(worker_count)

    def _check_listened(self, message: Message) -> None:
        """Fail a request at once that no handler can answer, instead of at its timeout."""
        if self._exchange.transactions and current(self._runtime.queues().store) is not None:
            raise UsageError(
                "a request inside a transaction would wait for ever: it is published only at the commit",
                "make the request before the transaction or after it",
            )
        kept = self._durable is not None and self._durable.is_listened_to(message.channel)
        if not kept and not self._exchange.is_listened_to(message.channel):
            raise RequestTimeout(
                f"no reply is possible: {message.channel!r} has no subscriber",
                "subscribe a handler that returns a value",
            )

    def _only_in_memory(self, what: str) -> None:
        """Raise UsageError for what a bus on a MessageBackend cannot do: the backend has the messages."""
        if self._workers is not None:
            raise UsageError(
                f"a bus on a MessageBackend cannot {what}", "use the backend itself, or a bus without a backend"
            )

    # Publishing, for both API classes

    def _message(
        self, channel: object, payload: object, priority: object, properties: MessageProperties | None
    ) -> Message:
        """The envelope of a publish. A Message that was published before gets a new one with the same id."""
        if isinstance(channel, Message):
            if payload is not None or priority is not None or properties is not None:
                raise UsageError(
                    "publish(message) takes no other arguments",
                    "set them on the message: message.with_priority(…), message.with_headers(…)",
                )
            # `envelope` checks what it makes itself. A Message is made by the caller, so its body and its schedule are
            # checked here.
            self._exchange.check_size(channel.channel, channel.body)
            if channel.properties is not None and channel.properties.scheduled_at_ns:
                raise cannot_schedule()
            if self._exchange.log_threads:
                self._exchange.feedback.note(channel.id)
            # `take` succeeds for one publish of this object. Every other one gets a copy: each admission assigns a
            # sequence, and one object has only one.
            return channel if channel.take() else channel.fresh()
        if not isinstance(channel, str):
            raise UsageError(f"a channel name must be a str, not {type(channel).__name__}")
        return self._exchange.envelope(self._exchange.channel(channel), payload, priority, properties)

    def _publish_blocking(self, message: Message, may_block: bool) -> Message:
        target = self._exchange.channel(message.channel)
        if self._durable is not None and self._durable.takes(target.name):
            return self._durable.publish_now(target, message, may_block)
        if self._exchange.transactions and self._put_off(target, [message]):
            return message
        verdict = self._exchange.post(target, message)
        if verdict == FULL and target.waits:
            self._post_from_sync(target, [message], may_block)
        elif verdict > DUPLICATE:
            raise self._exchange.refusal(target, message, verdict)
        return message

    def _post_from_sync(self, target: Channel, messages: list[Message], may_block: bool) -> None:
        """Block as the created channel says. On an implicit one `publish_from_sync` never blocks."""
        self._post_blocking(target, messages, may_block and target.declared and not on_a_loop())

    def _put_off(self, target: Channel, messages: list[Message]) -> bool:
        """Inside a transaction: publish after its commit. False if no transaction is open."""
        # The counter counts transactions of all tasks and threads: this task may have none.
        transaction = current(self._runtime.queues().store)
        if transaction is None:
            return False
        # Channels in memory cannot take a message back. So a publish that a rollback has to undo is not made before the
        # commit.
        transaction.afterwards(lambda: self._post_late(target, messages))
        return True

    def _post_late(self, target: Channel, messages: list[Message]) -> None:
        """Publish after the commit. A rejected message can only be counted and logged: the commit cannot be undone."""
        # Without waiting: this may run in the thread that commits for all callers.
        verdict = self._exchange.post_many(target, messages, True)
        if verdict > DUPLICATE:
            error = self._exchange.refusal(target, one_or_all(messages), verdict)
            log.warning("a message could not be published after the commit of its transaction: %s", error)

    def _post_blocking(
        self, target: Channel, messages: list[Message], may_block: bool, limit_s: float | None = None
    ) -> None:
        """Block until the channel has a free place, at most `limit_s`. Without `may_block` only try once more."""
        verdict: i64 = FULL
        if not may_block:
            verdict = self._exchange.post_many(target, messages, True)
        elif len(messages) <= target.max_size:
            # The shorter of the channel's limit and the caller's.
            timeout_s = target.block_timeout_s
            if limit_s is not None and (timeout_s is None or limit_s < timeout_s):
                timeout_s = limit_s
            self._runtime.backpressure.post(target, messages, timeout_s)
            return
        if verdict > DUPLICATE:
            raise self._exchange.refusal(target, one_or_all(messages), verdict)

    # Parameters instead of **fields: a compiled method needs a hundred nanoseconds to collect those.
    def _properties(
        self,
        trace_id: object,
        headers: Mapping[str, HeaderValue] | None,
        correlation_id: object,
        ttl: object,
        dedup_key: object,
        fields: Mapping[str, object] | None,
    ) -> MessageProperties | None:
        """The optional envelope fields, or None if none is given. An invalid one is counted and raised.

        The parameters are objects here and in the public methods: with a narrower type compiled code would raise
        TypeError before the value can be checked, named and counted.
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
            # Not left to `set_fields`: the error here names the methods that can delay a message.
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
        """The error of a publish with a `delay`, which only `send` has; counts it."""
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


def cannot_schedule() -> UsageError:
    return UsageError("publish() delivers at once and cannot schedule a message", SCHEDULE)


def several(payloads: Iterable[object]) -> list[object]:
    """The payloads of publish_many. Raises for one str or bytes: its characters would be published one by one."""
    if isinstance(payloads, (str, bytes)):
        raise UsageError(
            f"publish_many takes a list of payloads, not one {type(payloads).__name__}",
            "use publish(), or put the payload into a list",
        )
    return list(payloads)
