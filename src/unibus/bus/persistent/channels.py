"""Persistent channels: a channel is a topic of the store, a group on it a durable subscription.

`publish` stores one copy for each group and answers when that is durable. A group keeps its place when nobody listens:
its messages wait in the store. Subscribers by pattern, and lossy ones, hear what is published while they are there.

The way of a publish is in publishing.py. A channel drops nothing that it has stored: it is full when its slowest group
has `max_queue_size` messages unsettled.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from unibus.bus.execution.executors import HandlerExecutors
from unibus.bus.execution.handlers import HandlerPlan, durable_name, plan_for
from unibus.bus.execution.outcomes import BusDeliveryOutcomes
from unibus.bus.history.archive import instant_ns
from unibus.bus.persistent.listeners import ListenerFanOut
from unibus.bus.persistent.publishing import Publication, Publishing
from unibus.bus.persistent.pump import SubscriptionPump
from unibus.bus.persistent.pump_handlers import pump_handler
from unibus.bus.pubsub.channel import Channel
from unibus.bus.pubsub.exchange import Exchange, is_internal
from unibus.bus.pubsub.group import Consumer, Group, wake_all
from unibus.bus.pubsub.registry import Registry
from unibus.bus.pubsub.subscription import CancelledHandlers, Subscription
from unibus.bus.queues.operations import Queues, checked_subscription_name, declaration
from unibus.bus.settings import BLOCK, DROP_NEW, DROP_OLD, ChannelConfig, SubscribeOptions
from unibus.bus.subscriptions.subscriptions import checked_options, next_number, pattern_of
from unibus.core.atomic import LOCK
from unibus.core.envelope.message import Message
from unibus.core.flow.retry import RetryPolicy
from unibus.core.lifecycle.commands import Declare, Send
from unibus.core.lifecycle.state.changes import Settings
from unibus.core.lifecycle.state.entity import (
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    subscription_path,
)
from unibus.core.topics.pattern import EXACT, Pattern
from unibus.errors import ChannelNotFound, ConfigInvalid
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.pending import Pending

T = TypeVar("T")

_REFUSED = ("dispatch", "requeue", "queue_size")


class DurableChannels:
    """The persistent channels of one bus. `by_default`: every channel is one unless it was made otherwise."""

    def __init__(
        self,
        queues: Queues,
        exchange: Exchange,
        registry: Registry,
        executors: HandlerExecutors,
        outcomes: BusDeliveryOutcomes,
    ) -> None:
        self.by_default = False
        self.around: Callable[[Consumer, str], None] | None = None  # Told of each new handler, and may stand around it.
        self._queues = queues
        self._exchange = exchange
        self._registry = registry
        self._executors = executors
        self._outcomes = outcomes
        self._chosen: dict[str, bool] = {}
        self._configs: dict[str, ChannelConfig] = {}
        self._pumps: dict[str, SubscriptionPump] = {}
        self._subscriptions: list[Subscription] = []
        listeners = ListenerFanOut(exchange, executors.pool, outcomes)
        self._publishing = Publishing(queues, exchange, registry, listeners)
        with LOCK:
            registry.durable = [*registry.durable, listeners.group]

    def takes(self, channel: str) -> bool:
        """Whether the channel is a persistent one. Replies and the like never are."""
        return self._chosen.get(channel, self.by_default) and not is_internal(channel)

    def is_listened_to(self, channel: str) -> bool:
        """Whether a handler is subscribed to this very channel."""
        return self._listening(channel) > 0

    def handlers(self) -> list[tuple[Consumer, str]]:
        """Whoever holds a user's handler, with the path of its durable subscription."""
        return [(inner, pump.entity) for pump in self._pumps.values() for inner in pump.inner.values()]

    def _listening(self, channel: str) -> int:
        """How many of its groups have a handler here."""
        path = subscription_path(channel, "")
        return sum(entity.startswith(path) and len(pump.group.consumers) > 0 for entity, pump in self._pumps.items())

    def create(self, name: str, config: ChannelConfig, update: bool) -> bool:
        """Remember how the channel was made. True if it is a persistent one, which the store then has."""
        persistent = self.by_default if config.persistent is None else config.persistent
        if self._configs.get(name, config) != config and not update:
            return self._chosen[name]  # The registry refuses it, so nothing may change here.
        if persistent:
            _check_policy(name, config)
            settings: Settings = {"keeps": True}
            if config.ttl is not None:
                settings["default_ttl"] = config.ttl
            if config.dedup_window is not None:
                settings["dedup_window"] = max(config.dedup_window, 20.0)
            # It may be there already: from a publish that came first, or from an earlier life with other settings.
            self._make(TOPIC, name)
            _settled(self._queues.update(name, settings))
        self._chosen[name] = persistent
        self._configs[name] = config
        self._publishing.recount(name)
        return persistent

    # Publishing

    def publish(self, target: Channel, message: Message) -> Publication[Message]:
        """Store it for every group. An error but StoreFailed means that it was not stored."""
        return self._publishing.publish(target, [message]).map(lambda _: message)

    def publish_now(self, target: Channel, message: Message, may_block: bool) -> Message:
        """The same without awaiting. Where nobody may block it becomes durable in its own time."""
        pending = self.publish(target, message)
        return pending.wait() if may_block else message

    def publish_many(self, target: Channel, messages: list[Message]) -> Publication[list[Message]]:
        """All of them or none, in one batch."""
        return self._publishing.publish(target, messages).map(lambda _: messages)

    def send(
        self, topic: str, messages: list[Message], commands: list[Send], durability: Durability | None = None
    ) -> Pending[list[object]] | None:
        """Store what a protocol server sends to a topic. None where no channel of this process has to do with it."""
        if not self.takes(topic):
            return None
        target = self._exchange.channels.get(topic)
        if target is None and self._exchange.pattern_groups:
            try:
                target = self._registry.get_or_make(topic)
            except ChannelNotFound:
                return None  # A strict bus, where only channels that were created can be heard.
        return None if target is None else self._publishing.send(target, messages, commands, durability)

    def recount(self, topic: str) -> None:
        """A protocol server has changed the subscriptions of a topic."""
        self._publishing.recount(topic)

    # Subscribing

    def wants(self, target: str | Pattern, options: SubscribeOptions) -> bool:
        """Whether a subscription is a durable one: on one persistent channel, and not lossy."""
        pattern = pattern_of(target, options)
        return pattern.kind == EXACT and self.takes(str(pattern.text)) and not options.get("overflow")

    def subscribe(
        self,
        target: str | Pattern,
        handler: Callable[..., object],
        retry: RetryPolicy,
        concurrency: int,
        options: SubscribeOptions,
        module: str | None = None,
    ) -> Subscription:
        self._registry.check_open("subscribed")
        plan = plan_for(handler)
        checked_options(plan, concurrency, options)
        refused = [name for name in _REFUSED if name in options]
        if refused:
            raise ConfigInvalid(f"a persistent channel cannot do {refused[0]}", "leave it out")
        pattern = pattern_of(target, options)
        channel = self._registry.get_or_make(str(pattern.text))
        given = options.get("group")
        name = given or (durable_name(handler) if module is None else f"{module}.{plan.name}")
        checked_subscription_name(name)
        self._declare(channel.name, name, retry, options)
        self._publishing.recount(channel.name)
        pump = self._pump(channel, name, options)
        self._executors.abandon_closed_loops()  # What they hold may be for the new handler.
        with LOCK:
            self._check_alone(pump, handler, given)
            consumer = self._consumer(pump, handler, plan, retry, concurrency)
            subscription = Subscription(pattern, consumer, self._cancel)
            pump.group.add(consumer)
            self._subscriptions.append(subscription)
        pump.resume()
        wake_all(pump.group)
        return subscription

    def _declare(self, channel: str, group: str, retry: RetryPolicy, options: SubscribeOptions) -> None:
        """The topic and the subscription, made or brought up to date."""
        after, since_ns = _start(options.get("start"))
        config = self._configs.get(channel)
        self._queues.store.apply([Declare(channel, TOPIC, {})])
        path = subscription_path(channel, group)
        settings: Settings = {"max_delivery_count": retry.deliveries_max}
        if config is not None and config.dead_letter_channel:
            settings["forward_dead_letters_to"] = config.dead_letter_channel
            kind = TOPIC if self.takes(config.dead_letter_channel) else QUEUE
            self._make(kind, config.dead_letter_channel)
        _settled(self._queues.store.subscribe_from(Declare(path, SUBSCRIPTION, settings), after, since_ns))
        _settled(self._queues.update(path, settings))

    def _pump(self, channel: Channel, name: str, options: SubscribeOptions) -> SubscriptionPump:
        path = subscription_path(channel.name, name)
        pump = self._pumps.get(path)
        if pump is None:
            group = Group(next_number(), name, 0)
            group.metrics = channel.metrics
            pump = SubscriptionPump(self._queues, path, group, self._outcomes)
            pump.is_alone = lambda: self._listening(channel.name) <= 1
            self._pumps[path] = pump
            with LOCK:
                self._registry.durable = [*self._registry.durable, group]
        pump.idempotent = bool(options.get("idempotent", False))
        pump.group.filter = options.get("filter")
        return pump

    def _check_alone(self, pump: SubscriptionPump, handler: object, given: str | None) -> None:
        others = [each for each in pump.group.consumers if pump.inner[each.id].handler != handler]
        if given is None and others:
            raise ConfigInvalid(
                f"two handlers are called {pump.group.name!r}, and would share its messages",
                "give each a group= of its own, or the same one if they are to compete",
            )

    def _consumer(
        self,
        pump: SubscriptionPump,
        handler: Callable[..., object],
        plan: HandlerPlan,
        retry: RetryPolicy,
        concurrency: int,
    ) -> Consumer:
        number = next_number()
        inner = Consumer(number, pump.group, handler, plan.shape)
        inner.convert = plan.convert
        inner.retry = retry
        outer = Consumer(number, pump.group, pump_handler(pump, inner, plan.is_async), 0)
        outer.retry = retry
        outer.concurrency = concurrency
        outer.bus = self._exchange
        outer.executor = self._executors.executor_for(plan)
        pump.inner[number] = inner
        if self.around is not None:
            self.around(inner, pump.entity)
        return outer

    def _cancel(self, subscription: Subscription) -> CancelledHandlers:
        """Nothing more is handed to it. The durable subscription stays, and keeps its messages."""
        self._registry.check_process()
        consumer = subscription.consumer
        group = consumer.group
        with LOCK:
            group.remove(consumer)
            self._subscriptions = [each for each in self._subscriptions if each is not subscription]
        tasks = self._executors.end_slots(consumer)
        wake_all(group)  # A slot of this consumer may have been woken for messages that it does not take any more.
        for pump in list(self._pumps.values()):
            if pump.group is group:
                pump.inner.pop(subscription.id, None)
                pump.stop(only_if_unrunnable=True)
        self._outcomes.on_idle(group)
        return CancelledHandlers(tasks)

    def unsubscribe(self, wanted: object) -> bool:
        """By handle, by id, by handler or by channel, as for any other subscription."""
        found = [
            each
            for each in self._subscriptions
            if each is wanted or wanted in (each.id, each.channel) or self._handler_of(each) == wanted
        ]
        for subscription in found:
            subscription.cancel()
        return bool(found)

    def _handler_of(self, subscription: Subscription) -> object:
        for pump in self._pumps.values():
            if subscription.id in pump.inner:
                return pump.inner[subscription.id].handler
        return None

    def groups_here(self) -> list[tuple[Group, str]]:
        """The groups that this bus hands messages of the store to, with the paths of their subscriptions."""
        return [(pump.group, pump.entity) for pump in list(self._pumps.values())]

    def refuse_blocked(self) -> None:
        """Blocked publishers get BusClosed."""
        self._publishing.stop()

    def stop(self) -> None:
        """Claim no more, and release what no handler has seen."""
        self.refuse_blocked()
        for pump in list(self._pumps.values()):
            pump.stop()

    def _make(self, kind: int, name: str) -> None:
        """What the channel consists of in the store; no change if it exists."""
        _settled(self._queues.store.apply([declaration(kind, name, {}, self._queues.store)]))


def _settled(pending: Pending[list[object]] | Pending[object] | Pending[None] | Pending[int]) -> None:
    """Let it become durable in its own time. In memory it is true already."""
    pending.on_done(lambda _: None)


def _check_policy(name: str, config: ChannelConfig) -> None:
    if config.drop_policy == DROP_OLD:
        raise ConfigInvalid(
            f"channel {name!r} is persistent and drops nothing: it cannot have drop_policy {DROP_OLD!r}",
            f"use {DROP_NEW!r} or {BLOCK!r}, or persistent=False",
        )


def _start(start: object) -> tuple[int, int]:
    """Where a new group begins: after this sequence, and not before this instant."""
    if start is None or start == "end":
        return 2**62, 0
    if start == "beginning":
        return 0, 0
    if isinstance(start, datetime):
        return 0, instant_ns(start)
    if isinstance(start, int) and not isinstance(start, bool) and 0 <= start < 2**63:
        return start, 0
    raise ConfigInvalid(f"start is {start!r}", "use 'beginning', 'end', a sequence or a datetime")
