# mypyc: compiled
"""The path of a publish in memory: find the channel, route the message, admit it, dispatch it.

    publish ─▶ channel ─▶ envelope ─▶ routes + filters ─▶ Channel.offer ─▶ wake idle slots, call inline handlers
               (lookup)   (checks)    (no lock held)      (atomic)          (no lock held)

All API classes publish through one Exchange, from any thread and any event loop.

Invariant: code of the user (filters, inline handlers, log handlers) never runs under LOCK. So the routes can change
between routing and admission; `Channel.offer` then returns STALE, and the message is routed again.

`version` grows with every change of the pattern subscriptions. A channel caches its routes with the version they were
derived from, so the common publish compares two numbers and looks up nothing.
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple, final

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
from unibus.bus.pubsub.group import INSIDE, Group, wake, wake_blocked
from unibus.bus.pubsub.log_feedback import LogFeedback
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
"""Header of a reply: the id of the request. The correlation id is not enough, several requests may share one."""

# A text with no more characters than this is never over the limit: UTF-8 needs at most 4 bytes for a character.
_BODY_CHARS_SAFE: Final = BODY_BYTES_MAX // 4
# No class can derive from memoryview, so comparing types is enough, and cheap for other bodies.
_VIEW: Final = memoryview


class FullReason(NamedTuple):
    """Why a publisher did not wait for a free place any longer: the end of the error text, and its hint."""

    what: str
    hint: str


@mypyc_attr(allow_interpreted_subclasses=True)
class ChannelProvider:
    """The slow half of the exchange, implemented by Registry: makes missing channels, dead-letters evicted messages."""

    def admit_while_closing(self, name: str) -> None:
        """Raises BusClosed, unless a handler publishes while the bus is being drained."""
        raise NotImplementedError

    def missing(self, name: str) -> Channel:
        """Make the channel of a name that has none yet; raises ChannelNotFound on a strict bus."""
        raise NotImplementedError

    def enable_dedup(self, channel: Channel) -> None:
        """Give the channel a dedup window: a message with a dedup key was published."""
        raise NotImplementedError

    def filter_failed(self, channel: Channel, group: str, error: Exception) -> None:
        raise NotImplementedError

    def dead_letter(self, channel: Channel, evicted: list[Evicted]) -> None:
        raise NotImplementedError

    def report_unrouted(self, channel: Channel) -> None:
        """The channel has no subscriber: log that once. Called until it has set `is_unrouted_reported`."""
        raise NotImplementedError


@final
class Exchange:
    """All channels of one bus, and the pattern subscriptions that apply to any of them."""

    def __init__(self, id_generator: IdGenerator, clock: Clock) -> None:
        self.id_generator = id_generator
        self.monotonic_ns = clock.monotonic_ns
        self.wall_ns = clock.wall_ns
        # Changed under LOCK by Registry, read without it: a dict lookup is one atomic operation.
        self.channels: dict[str, Channel] = {}
        self.index = SubscriptionIndex()  # Prefixes and wildcards; groups with an exact name are on their channel.
        self.pattern_groups: dict[int, Group] = {}
        self.version: i64 = 0  # Grows with every change of the pattern subscriptions.
        self.closed = False
        self.delivery: SlotRunner | None = None
        self.provider = ChannelProvider()
        self.look_again_later: Callable[[Channel], None] = _never  # When a publisher blocks: backpressure.py.
        self.refused = ChannelMetrics()  # Rejected publishes that no channel can count: closed bus, unknown channel.
        self.posts: i64 = 0  # Single publishes so far; every 64th is measured.
        self.transactions: i64 = 0  # Open transactions of all tasks and threads.
        self.feedback = LogFeedback()
        self.log_threads: set[int] = self.feedback.threads  # Here, too: every publish looks whether it is empty.

    def publish(self, name: str, body: object, priority: object, properties: MessageProperties | None) -> Message:
        """Admit the message or raise. Never blocks: a full channel raises QueueFull, also with drop_policy `block`."""
        # The order decides which error wins: closed bus or unknown channel, then an invalid priority or body, then a
        # full channel. Nothing is changed before the last step.
        channel = self.channel(name)
        message = self.envelope(channel, body, priority, properties)
        verdict = self.post(channel, message)
        if verdict > DUPLICATE:
            raise self.refusal(channel, message, verdict)
        return message

    def channel(self, name: str) -> Channel:
        """The channel of that name, made if allowed. Raises BusClosed or ChannelNotFound."""
        if self.closed:
            self.provider.admit_while_closing(name)
        channel = self.channels.get(name)
        if channel is None:
            return self.provider.missing(name)
        return channel

    def envelope(
        self, channel: Channel, body: object, priority: object, properties: MessageProperties | None
    ) -> Message:
        """Make the message. Raises PriorityInvalid, MessageTooLarge or SerializationFailed."""
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
        message = Message(self.id_generator, channel.name, body, level, properties)
        if self.log_threads:
            self.feedback.note(message.id)
        return message

    def post(self, channel: Channel, message: Message) -> i64:
        """Route and admit one message in all its groups or none, then dispatch it. Returns the verdict."""
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
        # The two fast paths cover most publishes: one reliable group, or no group at all. Each repeats its checks
        # inside one atomic step, and falls through to the complete admission when anything is unusual.
        group = channel.only
        if group is not None and channel.offer_only(group, message):
            if group.inline:
                self.run_inline(group, message)
            elif group.idle > 0:
                wake(group)
            return ACCEPTED
        if channel.plain and channel.offer_unrouted(message):
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
        """The same for a batch: all messages are admitted, or none.

        `in_turn`: the caller has a granted place, or must not block, so it does not queue behind blocked publishers.
        A `publisher` that was blocked is removed from the channel with its admission.
        """
        if channel.routes_version != self.version:
            self.refresh(channel)
        for message in messages:
            self._prepare(channel, message)
        return self._post_all(channel, messages, in_turn, publisher)

    def _post_all(
        self, channel: Channel, messages: list[Message], in_turn: bool, publisher: BlockedPublisher | None
    ) -> i64:
        # Read once: filters run against exactly this list, and `offer` compares it by identity.
        routes = channel.routes
        waits = not in_turn and channel.blocked.count > 0 and must_wait(channel)
        routed_messages = [RoutedPublish(message, self._wanted(channel, routes, message)) for message in messages]
        verdict = channel.offer(routed_messages, routes, self.monotonic_ns(), waits)
        # Expired messages hold places until a slot pops them. They are searched only now, when a publish would be
        # rejected for them: a search at each publish would cost more than the publish.
        if verdict == FULL and channel.sweep(self.wall_ns()):
            self._swept(channel)
            verdict = channel.offer(routed_messages, routes, self.monotonic_ns(), waits)
        if verdict == STALE:
            # A subscription was added or cancelled after the routes were looked up.
            self.refresh(channel)
            # Filters run again for the new routes. The recursion ends, as each round needs another subscribe or cancel
            # in between.
            return self._post_all(channel, messages, in_turn, publisher)
        if publisher is not None and verdict <= UNROUTED:
            # Before the dispatch: an inline handler may run for long, and the next blocked publisher waits for this.
            channel.unblock(publisher)
        try:
            self._dead_letter_evicted(channel)
            if verdict == UNROUTED and not channel.is_unrouted_reported:
                self.provider.report_unrouted(channel)
        finally:
            # The messages are in the queues already. Without a wake-up they would wait for the next publish.
            if verdict <= UNROUTED:
                self._dispatch(routed_messages)
        return verdict

    def _swept(self, channel: Channel) -> None:
        for group in channel.routes:
            wake_blocked(group)  # Publishers of other channels that its pattern covers wait for its places, too.
        self._dead_letter_evicted(channel)
        channel.blocked.grant()

    def _dead_letter_evicted(self, channel: Channel) -> None:
        if channel.evicted or channel.expired:
            self.provider.dead_letter(channel, channel.take_evicted())

    def _dispatch(self, routed_messages: list[RoutedPublish]) -> None:
        """Wake idle slots and call the inline handlers: all of them, also after one that raises SystemExit."""
        failure: BaseException | None = None
        # All messages are admitted by now, so each of them gets its wake-up or its call, whatever an earlier handler
        # raised. The first exception is re-raised at the end, so that Ctrl-C still ends the program.
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
        """Call one consumer of an inline group, in turn, in the publisher's thread."""
        delivery = self.delivery
        consumers = group.consumers
        count: i64 = len(consumers)
        # A sequence of 0 means that this message was not admitted (a duplicate in a batch): no handler may see it.
        if delivery is not None and message.sequence:
            if count:
                delivery.deliver(consumers[0 if count == 1 else message.sequence % count], message)
            else:
                # The last consumer was cancelled after the admission. The closed group passes its queue to the channel,
                # which keeps or counts the message: it is not lost silently.
                group.queue.append(message, message.priority)
                delivery.outcomes.on_idle(group)

    def is_listened_to(self, name: str) -> bool:
        """Whether a message to that name would reach a group now, or be kept for the first group."""
        channel = self.channel(name)
        if channel.routes_version != self.version:
            self.refresh(channel)
        return channel.declared or len(channel.routes) > 0

    def block(self, channel: Channel, publisher: BlockedPublisher) -> None:
        """Register a blocked publisher; it is woken when a place becomes free or the groups change."""
        if channel.routes_version != self.version:
            self.refresh(channel)
        channel.block(publisher)
        # A mere check without LOCK: RepeatedLooks.begin checks again under it.
        if not channel.is_looked_at:
            self.look_again_later(channel)

    def force(self, channel: Channel, message: Message) -> None:
        """Push a message that was admitted before (a dead-lettered one) past every bound."""
        if channel.routes_version != self.version:
            self.refresh(channel)
        # Filters run without LOCK, so a subscribe can change the routes meanwhile. Nothing was pushed then: route
        # again.
        while True:
            routes = channel.routes
            routed = RoutedPublish(message, self._wanted(channel, routes, message))
            if channel.force(routed, routes):
                break
            self.refresh(channel)
        self._dead_letter_evicted(channel)
        self._dispatch([routed])

    def _wanted(self, channel: Channel, routes: list[Group], message: Message) -> list[Group]:
        """The routes whose filter accepts the message. A filter that raises rejects it for its own group only."""
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
        """Set the expiry, from the shorter of the message's and the channel's TTL; open a dedup window if needed."""
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
        """Derive the routes of a channel again, after a subscription has changed."""
        # A new list each time, never changed in place: publishers that route by the old list detect the change by
        # identity.
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
            channel.routes_version = self.version  # Under LOCK, so no change of `version` is missed in between.
            if channel.blocked.count:
                channel.watch_groups()

    def _level(self, channel: Channel, priority: object) -> i64:
        try:
            return checked_priority(priority)
        except PriorityInvalid as error:
            channel.metrics.count_refusal(error, 1)
            raise

    def check_size(self, name: str, body: object) -> None:
        """Raise MessageTooLarge for bytes or text over the limit. Text counts as UTF-8; nothing else is measured."""
        try:
            size = body_bytes(body)
            if size > BODY_BYTES_MAX:
                raise MessageTooLarge(
                    f"the body for {name!r} has {size:,} bytes, the limit is {BODY_BYTES_MAX:,}",
                    "store the data elsewhere and publish a reference to it",
                )
        except PublishError as error:
            channel = self.channels.get(name)
            metrics = self.refused if channel is None else channel.metrics
            metrics.count_refusal(error, 1)
            raise

    def refusal(self, channel: Channel, item: object, verdict: i64, reason: FullReason | None = None) -> PublishError:
        """The error of a negative verdict; counts it in the channel's metrics."""
        count = len(item) if isinstance(item, list) else 1
        if isinstance(item, Message):
            item.release()
        error = self._rate_limited(channel, count) if verdict == RATE_LIMITED else queue_full(channel, item, reason)
        channel.metrics.count_refusal(error, count)
        return error

    def _rate_limited(self, channel: Channel, count: int) -> PublishError:
        bucket = channel.bucket
        wait = 0.0 if bucket is None else bucket.wait_s(count, self.monotonic_ns())
        return rate_limited(channel.name, wait)


def rate_limited(name: str, wait_s: float) -> RateLimited:
    """The error of a channel without enough tokens; `wait_s` is infinite for a batch that is larger than the burst."""
    if math.isfinite(wait_s):
        hint = f"try again in {wait_s:.3f} s, or raise rate_limit_per_sec"
    else:
        hint = "the batch is larger than rate_limit_burst: publish fewer messages at once"
    return RateLimited(f"channel {name!r} is over its rate limit", hint, wait_s)


def queue_full(channel: Channel, item: object, reason: FullReason | None = None) -> PublishError:
    if isinstance(item, list) and len(item) > channel.max_size:
        return QueueFull(
            f"channel {channel.name!r} takes at most {counted(channel.max_size, 'message')} (max_queue_size), and the "
            f"batch has {len(item):,}",
            "publish smaller batches, or create the channel with a larger max_queue_size",
            item,
        )
    full = f"channel {channel.name!r} is full: {counted(channel.max_size, 'message')} waiting (max_queue_size)"
    if reason is not None:
        return QueueFull(full + reason.what, reason.hint, item)
    if not channel.declared:
        hint = "await publish(), which waits for a free place, or create the channel with a larger max_queue_size"
        return QueueFull(full, hint, item)
    return QueueFull(
        full, "publish more slowly, add workers, raise max_queue_size, or use drop_policy 'block' or 'drop_old'", item
    )


def body_bytes(body: object) -> int:
    """The size of a body in bytes; 0 for one that is not measured, or for a text that cannot be over the limit."""
    if isinstance(body, (bytes, bytearray)):
        return len(body)
    if isinstance(body, str):
        return len(body.encode("utf-8", "surrogatepass")) if len(body) > _BODY_CHARS_SAFE else 0
    if isinstance(body, memoryview):
        try:
            return body.nbytes  # len() of a memoryview counts items, or rows.
        except ValueError as error:
            raise SerializationFailed(
                f"the memoryview cannot be read: {error}", "publish it before its release()"
            ) from error
    return 0


def _never(channel: Channel) -> None:
    return


def must_wait(channel: Channel) -> bool:
    """Whether the next free places of a channel are reserved for publishers that are blocked already.

    A handler never queues behind them: they may wait for this very handler to return (deadlock). Nor does a publisher
    of a channel with filters: the blocked ones may wait for a place in other groups.
    """
    if not channel.waits or channel.has_filter:
        return False
    return INSIDE.get() is None and channel.blocked.can_run()


def is_internal(name: str) -> bool:
    """Dead-letter queues and replies. A pattern such as `#` must not match them: it would take the messages from
    their own subscribers."""
    return name.startswith(REPLY_PREFIX) or is_sub_queue(name)
