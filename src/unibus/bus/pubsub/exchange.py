# mypyc: compiled
"""The way of a publish: find the channel, find who wants the message, admit it, wake or call them.

It belongs to no thread and no loop; every face of the bus publishes through it.
"""

import math
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from unibus.bus.pubsub.blocked import BlockedPublisher
from unibus.bus.pubsub.channel import (
    ACCEPTED,
    DUPLICATE,
    FULL,
    RATE_LIMITED,
    STALE,
    UNROUTED,
    Channel,
    Evicted,
    RoutedPublish,
)
from unibus.bus.pubsub.delivery import SAMPLE_MASK, SlotRunner
from unibus.bus.pubsub.group import INSIDE, Group, wake, wake_all, wake_blocked
from unibus.clock import Clock
from unibus.core.atomic import LOCK
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import MessageProperties
from unibus.core.envelope.payload import Payload
from unibus.core.envelope.priority import checked_priority
from unibus.core.envelope.stamp import IdGenerator
from unibus.core.flow.deadletter import is_sub_queue
from unibus.core.flow.expiry import effective_ttl_ns, expires_at_ns
from unibus.core.flow.metrics import ChannelMetrics
from unibus.core.topics.index import SubscriptionIndex
from unibus.counting import counted
from unibus.errors import (
    MessageTooLarge,
    PriorityInvalid,
    PublishError,
    QueueFull,
    RateLimited,
    SerializationFailed,
)
from unibus.limits import BODY_BYTES_MAX

REPLY_PREFIX: Final = "$reply/"
REQUEST_HEADER: Final = "request_id"
"""In a reply: the id of the message that it answers. Several requests may share a correlation id."""

# A text of so many characters cannot have more bytes than a body may, whatever the characters are.
_BODY_CHARS_SAFE: Final = BODY_BYTES_MAX // 4
# No class can derive from it, so comparing types is enough, and costs other bodies next to nothing.
_VIEW: Final = memoryview


@mypyc_attr(allow_interpreted_subclasses=True)
class ChannelProvider:
    """The slow half of the exchange: makes missing channels, buries what admission threw out."""

    def admit_while_closing(self, name: str) -> None:
        """Raise BusClosed, unless a handler publishes while the bus is being drained."""
        raise NotImplementedError

    def missing(self, name: str) -> Channel:
        """The channel for a name that has none yet: made, or ChannelNotFound."""
        raise NotImplementedError

    def enable_dedup(self, channel: Channel) -> None:
        """Remember dedup keys from now on."""
        raise NotImplementedError

    def filter_failed(self, channel: Channel, group: str, error: Exception) -> None:
        raise NotImplementedError

    def dead_letter(self, channel: Channel, evicted: list[Evicted]) -> None:
        raise NotImplementedError

    def report_unrouted(self, channel: Channel) -> None:
        """No subscriber takes the messages of the channel. Called until it has set `is_unrouted_reported`."""
        raise NotImplementedError


@final
class Exchange:
    """All channels of one bus. `version` grows with every change of who is subscribed to what."""

    def __init__(self, id_generator: IdGenerator, clock: Clock) -> None:
        self.id_generator = id_generator
        self.monotonic_ns = clock.monotonic_ns
        self.wall_ns = clock.wall_ns
        self.channels: dict[str, Channel] = {}
        self.index = SubscriptionIndex()  # Prefixes and wildcards; exact names are on the channels themselves.
        self.pattern_groups: dict[int, Group] = {}
        self.version: i64 = 0
        self.closed = False
        self.delivery: SlotRunner | None = None
        self.provider = ChannelProvider()
        self.look_again_later: Callable[[Channel], None] = _never  # Called when a publisher waits; see room.py.
        self.refused = ChannelMetrics()  # Publishes that no channel can count: closed bus, unknown channel.
        self.posts: i64 = 0  # Messages that were offered one by one.
        self.transactions: i64 = 0  # Open ones, of all tasks and threads.

    def publish(self, name: str, body: object, priority: object, properties: MessageProperties | None) -> Message:
        """Accept the message or raise; never waits for room."""
        channel = self.channel(name)
        message = self.envelope(channel, body, priority, properties)
        verdict = self.post(channel, message)
        if verdict > DUPLICATE:
            raise self.refusal(channel, message, verdict)
        return message

    def channel(self, name: str) -> Channel:
        if self.closed:
            self.provider.admit_while_closing(name)
        channel = self.channels.get(name)
        if channel is None:
            return self.provider.missing(name)
        return channel

    def envelope(
        self, channel: Channel, body: object, priority: object, properties: MessageProperties | None
    ) -> Message:
        level = channel.default_priority if priority is None else self._level(channel, priority)
        if isinstance(body, Payload):
            body = body.value
        # The most common body first: a bit of its type tells a dict, which is not measured.
        if isinstance(body, dict):
            pass
        elif isinstance(body, (bytes, str, bytearray)):
            if len(body) > _BODY_CHARS_SAFE:
                self.check_size(channel.name, body)
        elif type(body) is _VIEW:
            self.check_size(channel.name, body)
        return Message(self.id_generator, channel.name, body, level, properties)

    def post(self, channel: Channel, message: Message) -> i64:
        """Route a message: admit it everywhere or nowhere, then wake the queues and call the inline handlers."""
        self.posts += 1
        if self.posts & SAMPLE_MASK == 0:
            start = self.monotonic_ns()
            verdict = self._post(channel, message)
            if verdict <= UNROUTED:
                channel.metrics.publish_latency.record(self.monotonic_ns() - start)
            return verdict
        return self._post(channel, message)

    def _post(self, channel: Channel, message: Message) -> i64:
        if channel.routes_version != self.version:
            self.refresh(channel)
        if channel.ttl_ns or message.properties is not None:
            self._prepare(channel, message)
        group = channel.only
        if group is not None and channel.offer_only(group, message):
            if group.inline:
                self.run_inline(group, message)
            elif group.idle > 0:
                wake(group)
            return ACCEPTED
        if channel.plain and channel.offer_nobody(message):
            if channel.declared:
                return ACCEPTED
            if not channel.is_unrouted_reported:
                self.provider.report_unrouted(channel)
            return UNROUTED
        return self._post_all(channel, [message], False, None)

    def post_many(
        self,
        channel: Channel,
        messages: list[Message],
        in_turn: bool = False,
        publisher: BlockedPublisher | None = None,
    ) -> i64:
        """The same for several messages: all are admitted, or none.

        `in_turn`: by a publisher whose turn it is, or that cannot wait, so that it does not wait behind others. A
        `publisher` that has waited leaves the channel's order with its admission.
        """
        if channel.routes_version != self.version:
            self.refresh(channel)
        for message in messages:
            self._prepare(channel, message)
        return self._post_all(channel, messages, in_turn, publisher)

    def _post_all(
        self, channel: Channel, messages: list[Message], in_turn: bool, publisher: BlockedPublisher | None
    ) -> i64:
        routes = channel.routes
        waits = not in_turn and channel.blocked.count > 0 and must_wait(channel)
        routed_messages = [RoutedPublish(message, self._wanted(channel, routes, message)) for message in messages]
        verdict = channel.offer(routed_messages, routes, self.monotonic_ns(), waits)
        if verdict == FULL and channel.sweep(self.wall_ns()):
            self._swept(channel)
            verdict = channel.offer(routed_messages, routes, self.monotonic_ns(), waits)
        if verdict == STALE:
            # Somebody subscribed or left in the meantime.
            self.refresh(channel)
            return self._post_all(channel, messages, in_turn, publisher)
        if publisher is not None and verdict <= UNROUTED:
            channel.unblock(publisher)  # Now: an inline handler may run for long, and others wait for places.
        try:
            self._bury(channel)
            if verdict == UNROUTED and not channel.is_unrouted_reported:
                self.provider.report_unrouted(channel)
        finally:
            if verdict <= UNROUTED:
                self._hand_over(routed_messages)
        return verdict

    def _swept(self, channel: Channel) -> None:
        for group in channel.routes:
            wake_all(group)  # A slot that looked during the sweep may have seen an empty queue.
            wake_blocked(group)  # Publishers of other channels that a pattern covers wait for its places, too.
        self._bury(channel)
        channel.blocked.grant()

    def _bury(self, channel: Channel) -> None:
        if channel.evicted:
            self.provider.dead_letter(channel, channel.take_evicted())

    def _hand_over(self, routed_messages: list[RoutedPublish]) -> None:
        """Wake the groups and call the inline handlers: all of them, also after one that ends the program."""
        failure: BaseException | None = None
        for routed in routed_messages:
            for group in routed.groups:
                if group.inline:
                    try:
                        self.run_inline(group, routed.message)
                    except BaseException as error:
                        failure = error if failure is None else failure
                elif group.idle > 0:
                    wake(group)
        if failure is not None:
            raise failure

    def run_inline(self, group: Group, message: Message) -> None:
        delivery = self.delivery
        consumers = group.consumers
        count: i64 = len(consumers)
        if delivery is not None and message.sequence:
            if count:
                delivery.deliver(consumers[0 if count == 1 else message.sequence % count], message)
            else:
                # The last consumer was cancelled after the message was admitted: its channel keeps it, or counts it.
                group.queue.append(message, message.priority)
                delivery.outcomes.rested(group)

    def is_listened_to(self, name: str) -> bool:
        """Whether a message to that name would reach anybody now, or be kept for somebody who comes."""
        channel = self.channel(name)
        if channel.routes_version != self.version:
            self.refresh(channel)
        return channel.declared or len(channel.routes) > 0

    def block(self, channel: Channel, publisher: BlockedPublisher) -> None:
        """Let a publisher wait until there may be room: a queue gave something away, or the groups changed."""
        if channel.routes_version != self.version:
            self.refresh(channel)
        channel.block(publisher)
        if not channel.is_looked_at:
            self.look_again_later(channel)

    def force(self, channel: Channel, message: Message) -> None:
        """Push past every bound what was admitted before: a dead letter."""
        if channel.routes_version != self.version:
            self.refresh(channel)
        while True:
            routes = channel.routes
            routed = RoutedPublish(message, self._wanted(channel, routes, message))
            if channel.force(routed, routes):
                break
            self.refresh(channel)
        self._bury(channel)
        self._hand_over([routed])

    def _wanted(self, channel: Channel, routes: list[Group], message: Message) -> list[Group]:
        """The routes whose filter agrees. A filter that raises has not agreed, and hurts nobody else."""
        if not channel.has_filter:
            return routes
        wanted: list[Group] = []
        for group in routes:
            accepts = group.filter
            try:
                if accepts is None or accepts(message):
                    wanted.append(group)
            except Exception as error:
                self.provider.filter_failed(channel, group.name, error)
        return wanted

    def _prepare(self, channel: Channel, message: Message) -> None:
        properties = message.properties
        own: i64 = 0
        if properties is not None:
            own = properties.ttl_ns
            if properties.dedup_key is not None and channel.dedup is None:
                self.provider.enable_dedup(channel)
        ttl = effective_ttl_ns(own, channel.ttl_ns)
        if ttl:
            message.expires_ns = expires_at_ns(message.timestamp_ns, ttl)
            channel.may_expire(message.expires_ns)

    def refresh(self, channel: Channel) -> None:
        """Derive the routes of a channel anew after any subscription changed."""
        with LOCK:
            routes = list(channel.groups)
            internal = is_internal(channel.name)
            for number in self.index.match(channel.name):
                if not internal or self.pattern_groups[number].takes_internal:
                    routes.append(self.pattern_groups[number])
            channel.routes = routes
            channel.has_filter = any([group.filter is not None for group in routes])
            channel.plain = not channel.has_filter and not channel.is_timed()
            channel.only = routes[0] if channel.plain and len(routes) == 1 and routes[0].bound == 0 else None
            channel.routes_version = self.version
            if channel.blocked.count:
                channel.watch_groups()

    def _level(self, channel: Channel, priority: object) -> i64:
        try:
            return checked_priority(priority)
        except PriorityInvalid as error:
            channel.metrics.count_refusal(error, 1)
            raise

    def check_size(self, name: str, body: object) -> None:
        """Refuse bytes and text over the limit. Text counts as the bytes that it will be; nothing else is measured."""
        try:
            size = body_bytes(body)
            if size > BODY_BYTES_MAX:
                raise MessageTooLarge(
                    f"a body of {size:,} bytes for {name!r} is over the limit of {BODY_BYTES_MAX:,}",
                    "store it elsewhere and publish a reference",
                )
        except PublishError as error:
            channel = self.channels.get(name)
            metrics = self.refused if channel is None else channel.metrics
            metrics.count_refusal(error, 1)
            raise

    def refusal(self, channel: Channel, item: object, verdict: i64) -> PublishError:
        """The error for a verdict, counted by kind."""
        count = len(item) if isinstance(item, list) else 1
        if isinstance(item, Message):
            item.release()
        error = self._rate_limited(channel, count) if verdict == RATE_LIMITED else queue_full(channel, item)
        channel.metrics.count_refusal(error, count)
        return error

    def _rate_limited(self, channel: Channel, count: int) -> PublishError:
        bucket = channel.bucket
        wait = 0.0 if bucket is None else bucket.wait_s(count, self.monotonic_ns())
        hint = f"try again in {wait:.3f} s" if math.isfinite(wait) else "more than its burst: send fewer at once"
        return RateLimited(f"channel {channel.name!r} is over its rate", hint, wait)


def queue_full(channel: Channel, item: object) -> PublishError:
    return QueueFull(
        f"channel {channel.name!r} has {counted(channel.max_size, 'message')} waiting, its bound",
        "slow down, raise max_queue_size, add workers, or choose drop_policy 'block' or 'drop_old'",
        item,
    )


def body_bytes(body: object) -> int:
    """The bytes of a body; 0 for one that is not measured, or for a text that cannot be over the limit."""
    if isinstance(body, (bytes, bytearray)):
        return len(body)
    if isinstance(body, str):
        return len(body.encode("utf-8", "surrogatepass")) if len(body) > _BODY_CHARS_SAFE else 0
    if isinstance(body, memoryview):
        try:
            return body.nbytes  # Its len() counts items, or rows.
        except ValueError as error:
            raise SerializationFailed(f"the body cannot be read: {error}", "publish it before release()") from error
    return 0


def _never(channel: Channel) -> None:
    return


def must_wait(channel: Channel) -> bool:
    """Whether the next places of a channel are for publishers that wait already.

    A handler never waits behind others: it may be what they wait for. Nor does a publisher where filters choose the
    groups: those that wait may want a place in other ones.
    """
    if not channel.waits or channel.has_filter:
        return False
    return INSIDE.get() is None and channel.blocked.can_run()


def is_internal(name: str) -> bool:
    """Dead letters and replies: an audit that subscribes to everything must not take them from those they are for."""
    return name.startswith(REPLY_PREFIX) or is_sub_queue(name)
