"""Publishes with a span around each call, in memory and into a store.

`TracedChannels` takes the place of the persistent channels of a bus (publish_path.py): it accepts every publish and
passes it on. So a bus that is not traced executes no additional check. A refused publish leaves its message unchanged.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar, cast

from opentelemetry.trace import Span

from unibus.bus.api import ready
from unibus.bus.api.bus_operations import BusOperations
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.otel.spans import Spans, failed, imprint
from unibus.bus.persistent.publish_path import PublishPath, cannot_persist
from unibus.bus.persistent.publish_queue import BlockedResult
from unibus.bus.pubsub.channel import DUPLICATE, FULL, Channel
from unibus.bus.pubsub.delivery import QUANTUM
from unibus.bus.pubsub.exchange import is_internal
from unibus.bus.pubsub.subscription import Subscription
from unibus.bus.settings import ChannelConfig, SubscribeOptions
from unibus.core.envelope.message import Message
from unibus.core.flow.retry import RetryPolicy
from unibus.core.topics.pattern import Pattern
from unibus.errors import StoreFailed
from unibus.safe_log import SafeLogger
from unibus.stores.seam.pending import Pending, resolved

log = SafeLogger("unibus")
T = TypeVar("T")
Publication = Pending[T] | BlockedResult[T]


class TracedChannels:
    """The PublishPath of a traced bus. `inner` is that of its store, None for a bus in memory."""

    def __init__(self, spans: Spans, bus: BusOperations, inner: PublishPath | None) -> None:
        self._spans = spans
        self._bus = bus
        self._inner = inner

    def takes(self, channel: str) -> bool:
        # Replies and dead-letter queues in memory have no span of their own: a reply belongs to its request, and a
        # dead-lettered message to the failed attempt.
        return not is_internal(channel) or self._is_stored(channel)

    def _is_stored(self, channel: str) -> bool:
        return self._inner is not None and self._inner.takes(channel)

    # Publishing

    def publish(self, target: Channel, message: Message) -> Publication[Message]:
        inner = self._inner
        if inner is not None and inner.takes(target.name):
            return self._stored(target, [message], lambda: inner.publish(target, message))
        return cast("Publication[Message]", self._posted(target, [message], message))

    def publish_many(self, target: Channel, messages: list[Message]) -> Publication[list[Message]]:
        inner = self._inner
        if inner is not None and inner.takes(target.name):
            return self._stored(target, messages, lambda: inner.publish_many(target, messages))
        return cast("Publication[list[Message]]", self._posted(target, messages, messages))

    def publish_now(self, target: Channel, message: Message, may_block: bool) -> Message:
        inner = self._inner
        if inner is not None and inner.takes(target.name):
            pending = self._stored(target, [message], lambda: inner.publish(target, message))
            if may_block:
                return pending.wait()
            if isinstance(pending, Pending) and not pending.is_decided:
                pending.on_done(partial(_log_refusal, target.name))
            return message
        # The span covers the wait for a free place, too.
        with _Publish(self._spans, target, [message]):
            if self._post(target, [message], message) == FULL:
                self._bus._post_from_sync(target, [message], may_block)
        return message

    def _stored(
        self, target: Channel, messages: list[Message], publish: Callable[[], Publication[T]]
    ) -> Publication[T]:
        """Publish into the store; the span ends when the commit is decided."""
        publishing = _Publish(self._spans, target, messages)
        try:
            publication = publish()
        except BaseException as error:
            publishing.refused(error)
            raise
        # Not when the caller awaits it: a publish that is never awaited must end its span, too.
        publication.on_done(partial(_ended, publishing.span))
        return publication

    def _posted(self, target: Channel, messages: list[Message], item: object) -> object:
        """Publish in memory, as the API classes do: an async bus gets an awaitable, a sync bus a resolved Pending."""
        # The same decisions as in the two API classes, with the span around them: bus._refused, bus._wait_for_place.
        bus = self._bus
        publishing = _Publish(self._spans, target, messages)
        with publishing:
            if self._post(target, messages, item) == FULL:
                if isinstance(bus, SyncMessageBus):
                    bus._refused(target, messages, FULL)
                # Awaited later, perhaps in another task: the span stays open until then, and `__exit__` must not end it
                # here.
                elif isinstance(bus, MessageBus) and not bus._is_posted_at_call(target, messages):
                    publishing.is_blocked = True
                    return self._wait_for_space(publishing, bus._wait_for_place(target, messages), item)
        if isinstance(bus, SyncMessageBus):
            return resolved(item)
        return _ready_result(item, target.sequence & (QUANTUM - 1) == 0 or not isinstance(item, Message))

    def _post(self, target: Channel, messages: list[Message], item: object) -> int:
        """The verdict of the channel; FULL only if the publisher may block. Any other refusal is raised."""
        exchange = self._bus._exchange
        # The span ends with the call, although the message goes out after the commit: its context is in the message
        # already.
        if exchange.transactions and self._bus._put_off(target, messages):
            return 0
        single = isinstance(item, Message)
        verdict = int(exchange.post(target, messages[0]) if single else exchange.post_many(target, messages))
        may_wait = target.waits and (single or len(messages) <= target.max_size)
        if verdict > DUPLICATE and not (verdict == FULL and may_wait):
            raise exchange.refusal(target, item, verdict)
        return verdict

    async def _wait_for_space(self, publishing: "_Publish", published: Awaitable[object], item: T) -> T:
        """Wait until the blocked publish is admitted; the span covers the wait."""
        with publishing:
            # From here on `__exit__` ends the span, also if the wait is cancelled or refused.
            publishing.is_blocked = False
            await published
        return item

    # The rest is passed on to the store's channels

    def create(self, name: str, config: ChannelConfig, update: bool) -> bool:
        if self._inner is not None:
            return self._inner.create(name, config, update)
        if config.persistent:
            raise cannot_persist(name)
        return False

    def is_listened_to(self, channel: str) -> bool:
        return self._inner is not None and self._inner.is_listened_to(channel)

    def wants(self, target: str | Pattern, options: SubscribeOptions) -> bool:
        return self._inner is not None and self._inner.wants(target, options)

    def subscribe(
        self,
        target: str | Pattern,
        handler: Callable[..., object],
        retry: RetryPolicy,
        concurrency: int,
        options: SubscribeOptions,
        module: str | None = None,
    ) -> Subscription:
        assert self._inner is not None  # The bus calls this only after `wants` was true.
        return self._inner.subscribe(target, handler, retry, concurrency, options, module)

    def unsubscribe(self, wanted: object) -> bool:
        return self._inner is not None and self._inner.unsubscribe(wanted)


class _Publish:
    """One publish in progress: its span, and its messages with the context of that span."""

    def __init__(self, spans: Spans, target: Channel, messages: list[Message]) -> None:
        self.span: Span = spans.sending("publish", target.name, messages)
        self.is_blocked = False  # The publish waits for space: `_wait_for_space` ends the span.
        # `imprint` replaces the properties and does not change them, so the old objects can be put back.
        self._before = [(message, message.properties) for message in messages]
        imprint(messages, self.span)

    def refused(self, error: BaseException) -> None:
        failed(self.span, error)
        self.span.end()
        # Nothing was published: a later publish of the same message must not inherit the context of this one.
        for message, properties in self._before:
            message.properties = properties

    def __enter__(self) -> "_Publish":
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self.refused(error)
        elif not self.is_blocked:
            self.span.end()


def _ended(span: Span, pending: Pending[object]) -> None:
    if pending.error is not None:
        failed(span, pending.error)
    span.end()


def _log_refusal(channel: str, pending: Pending[Message]) -> None:
    """As DurableChannels: no caller waits, so a refusal that arrives with the answer is raised nowhere."""
    if pending.error is not None and not isinstance(pending.error, StoreFailed):
        log.warning("a publish to %r that was not awaited has failed: %s", channel, pending.error)


def _ready_result(item: object, yields: bool) -> Awaitable[object]:
    """The awaitable of a publish that is done. With `yields`, awaiting it lets other tasks run first."""
    if isinstance(item, Message):
        return ready.publish_after_others(item) if yields else ready.publish(item)
    return ready.publish_many(cast("list[Message]", item))
