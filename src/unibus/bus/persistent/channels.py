"""Persistent channels: a channel is a topic of the store, a consumer group on it is a durable subscription.

    publish ──▶ topic ──fan-out──▶ subscription of group A ──SubscriptionPump──▶ handlers of A    at-least-once
                      ├──────────▶ subscription of group B ──SubscriptionPump──▶ handlers of B    at-least-once
                      └──once durable──▶ ListenerFanOut ──▶ patterns and lossy groups             only while connected

`publish` stores one copy for each group and answers when that is durable. A group without a running handler keeps its
position: its messages wait in the store, also over a restart. Subscriptions to a pattern and lossy ones are not
durable: they get the messages that are published while they exist.

A persistent channel never evicts a stored message, so `drop_old` is not allowed. It is full when its slowest group has
`max_queue_size` unsettled messages (free_places.py).
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TypeVar

from unibus.bus.execution.executors import HandlerExecutors
from unibus.bus.execution.handlers import HandlerPlan, durable_name, former_durable_name, plan_for
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
from unibus.bus.pubsub.wait_graph import WaitGraph
from unibus.bus.queues.operations import Queues, checked_subscription_name, declaration
from unibus.bus.settings import DROP_POLICIES, ChannelConfig, SubscribeOptions
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
from unibus.safe_log import SafeLogger
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.pending import Pending
from unibus.stores.seam.store import Store

log = SafeLogger("unibus")
T = TypeVar("T")

_REFUSED = ("dispatch", "requeue", "queue_size")


class DurableChannels:
    """The persistent channels of one bus. `by_default`: channels are persistent unless their config says otherwise."""

    def __init__(
        self,
        queues: Queues,
        exchange: Exchange,
        registry: Registry,
        executors: HandlerExecutors,
        outcomes: BusDeliveryOutcomes,
        graph: WaitGraph,
    ) -> None:
        self.by_default = False
        self.around: Callable[[Consumer, str], None] | None = None  # Called with each new handler; tracing wraps it.
        self._queues = queues
        self._exchange = exchange
        self._registry = registry
        self._executors = executors
        self._outcomes = outcomes
        # `_chosen` and `_configs` grow with create_channel, `_pumps` with subscribe; entries are replaced and never
        # removed, so readers need no lock. `_subscriptions` changes under LOCK.
        self._chosen: dict[str, bool] = {}
        self._configs: dict[str, ChannelConfig] = {}
        self._pumps: dict[str, SubscriptionPump] = {}
        self._subscriptions: list[Subscription] = []
        listeners = ListenerFanOut(exchange, executors.pool, outcomes)
        self._publishing = Publishing(queues, exchange, registry, listeners, graph)
        graph.stored_takers = lambda channel: self._listening(channel) if self.takes(channel) else None
        with LOCK:
            registry.durable = [*registry.durable, listeners.group]

    def takes(self, channel: str) -> bool:
        """Whether the channel is persistent. Internal channels (replies, dead-letter queues) never are."""
        return self._chosen.get(channel, self.by_default) and not is_internal(channel)

    def is_listened_to(self, channel: str) -> bool:
        """Whether a handler of this process is subscribed to exactly this channel."""
        return bool(self._listening(channel))

    def handlers(self) -> list[tuple[Consumer, str]]:
        """The consumers with the users' handlers, each with the path of its durable subscription."""
        return [(inner, pump.entity) for pump in self._pumps.values() for inner in pump.inner.values()]

    def _listening(self, channel: str) -> list[Group]:
        """The groups of the channel that have a handler in this process."""
        path = subscription_path(channel, "")
        pumps = [pump for entity, pump in list(self._pumps.items()) if entity.startswith(path)]
        return [pump.group for pump in pumps if pump.group.consumers]

    def create(self, name: str, config: ChannelConfig, update: bool) -> bool:
        """Remember the config of the channel. True if it is persistent; its topic then exists in the store."""
        persistent = self.by_default if config.persistent is None else config.persistent
        if self._configs.get(name, config) != config and not update:
            return self._chosen[name]  # The registry will raise ChannelExists: change nothing here.
        if persistent:
            _check_policy(name, config)
            settings: Settings = {"keeps": True}
            if config.ttl is not None:
                settings["default_ttl"] = config.ttl
            if config.dedup_window is not None:
                settings["dedup_window"] = max(config.dedup_window, 20.0)
            self._registry.names.check_persistent(name)
            # The topic may exist: from an earlier publish, or from an earlier run with other settings. So update it.
            self._make(TOPIC, name)
            _commit_later(self._queues.update(name, settings))
        # Last: if the store rejects the topic, the channel is not remembered as persistent.
        self._chosen[name] = persistent
        self._configs[name] = config
        return persistent

    # Publishing

    def publish(self, target: Channel, message: Message) -> Publication[Message]:
        """Store the message for every group. After any error but StoreFailed it is certain that it was not stored."""
        return self._publishing.publish(target, [message]).map(lambda _: message)

    def publish_now(self, target: Channel, message: Message, may_block: bool) -> Message:
        """The same from sync code: waits until it is durable. Without `may_block` it becomes durable a little later."""
        pending = self.publish(target, message)
        if may_block:
            return pending.wait()
        if isinstance(pending, Pending) and not pending.is_accepted:
            pending.on_done(partial(_log_refusal, target.name))
        return message

    def publish_many(self, target: Channel, messages: list[Message]) -> Publication[list[Message]]:
        """Store all messages or none, in one batch."""
        return self._publishing.publish(target, messages).map(lambda _: messages)

    def send(
        self, topic: str, messages: list[Message], commands: list[Send], durability: Durability | None = None
    ) -> Pending[list[object]] | None:
        """Store what a protocol server sends to a topic. None if the topic is no channel of this process."""
        if not self.takes(topic):
            return None
        target = self._exchange.channels.get(topic)
        if target is None and self._exchange.pattern_groups:
            try:
                target = self._registry.get_or_make(topic)
            except ChannelNotFound:
                return None  # On a strict bus a pattern matches declared channels only.
        return None if target is None else self._publishing.send(target, messages, commands, durability)

    def recount(self, topic: str) -> None:
        """The settings of a channel or the subscriptions of a topic have changed: count its free places again."""
        self._publishing.recount(topic)

    # Subscribing

    def wants(self, target: str | Pattern, options: SubscribeOptions) -> bool:
        """Whether a subscription is durable: on one persistent channel by its exact name, and not lossy."""
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
        plan = plan_for(handler, in_memory=False)
        checked_options(plan, concurrency, options)
        refused = [name for name in _REFUSED if name in options]
        if refused:
            raise ConfigInvalid(
                f"option {refused[0]!r} is not available on a persistent channel",
                "leave it out, or use a channel with persistent=False",
            )
        pattern = pattern_of(target, options)
        self._registry.names.check_persistent(str(pattern.text))
        channel = self._registry.get_or_make(str(pattern.text))
        given = options.get("group")
        name = given or _default_group(self._queues.store, channel.name, handler, module)
        checked_subscription_name(name)
        # The durable subscription before the pump: from here on messages are kept for this group, even if the process
        # is killed before its handler runs.
        self._declare(channel.name, name, retry, options)
        self._publishing.recount(channel.name)
        pump = self._pump(channel, name, options)
        self._executors.abandon_closed_loops()  # Requeues their messages, which the new handler may get.
        with LOCK:
            self._check_alone(pump, handler, given)
            consumer = self._consumer(pump, handler, plan, retry, concurrency)
            subscription = Subscription(pattern, consumer, self._cancel)
            pump.group.add(consumer)
            self._subscriptions.append(subscription)
        # After LOCK: a claim calls into the store.
        pump.resume()
        wake_all(pump.group)
        return subscription

    def _declare(self, channel: str, group: str, retry: RetryPolicy, options: SubscribeOptions) -> None:
        """Create the topic and the subscription, or update their settings."""
        after, since_ns = _start(options.get("start"))
        config = self._configs.get(channel)
        _commit_later(self._queues.store.apply([Declare(channel, TOPIC, {})]))
        path = subscription_path(channel, group)
        settings: Settings = {"max_delivery_count": retry.deliveries_max}
        if config is not None and config.dead_letter_channel:
            settings["forward_dead_letters_to"] = config.dead_letter_channel
            kind = TOPIC if self.takes(config.dead_letter_channel) else QUEUE
            self._make(kind, config.dead_letter_channel)
        _commit_later(self._queues.store.subscribe_from(Declare(path, SUBSCRIPTION, settings), after, since_ns))
        _commit_later(self._queues.update(path, settings))

    def _pump(self, channel: Channel, name: str, options: SubscribeOptions) -> SubscriptionPump:
        path = subscription_path(channel.name, name)
        pump = self._pumps.get(path)
        if pump is None:
            group = Group(next_number(), name, 0)
            group.metrics = channel.metrics
            pump = SubscriptionPump(self._queues, path, group, self._outcomes)
            pump.is_alone = lambda: len(self._listening(channel.name)) <= 1
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
                f"two handlers have the same name {pump.group.name!r}, which is their group: they would compete",
                "pass group= to each: different groups both get every message, the same group shares them",
            )

    def _consumer(
        self,
        pump: SubscriptionPump,
        handler: Callable[..., object],
        plan: HandlerPlan,
        retry: RetryPolicy,
        concurrency: int,
    ) -> Consumer:
        # Two consumers: the slot runs `outer`, whose handler admits and settles the message in the store
        # (pump_handlers.py); `inner` has the user's handler and its conversion.
        number = next_number()
        inner = Consumer(number, pump.group, handler, plan.shape)
        inner.convert = plan.convert
        inner.retry = retry
        inner.name = plan.name
        outer = Consumer(number, pump.group, pump_handler(pump, inner, plan.is_async), 0)
        outer.retry = retry
        outer.name = plan.name
        outer.settles = True
        outer.concurrency = concurrency
        outer.bus = self._exchange
        outer.executor = self._executors.executor_for(plan)
        pump.inner[number] = inner
        if self.around is not None:
            self.around(inner, pump.entity)
        return outer

    def _cancel(self, subscription: Subscription) -> CancelledHandlers:
        """Stop the delivery to one handler. The durable subscription and its messages stay in the store."""
        self._registry.check_process()
        consumer = subscription.consumer
        group = consumer.group
        with LOCK:
            group.remove(consumer)
            self._subscriptions = [each for each in self._subscriptions if each is not subscription]
        tasks = self._executors.end_slots(consumer)
        wake_all(group)  # A slot of this consumer may have been woken for a message that it will not take now.
        for pump in list(self._pumps.values()):
            if pump.group is group:
                pump.inner.pop(subscription.id, None)
                # Only without a consumer left. The check is repeated under the pump's lock: a handler may be subscribed
                # meanwhile.
                pump.stop(only_if_unrunnable=True)
        self._outcomes.on_idle(group)
        return CancelledHandlers(tasks)

    def unsubscribe(self, wanted: object) -> bool:
        """Cancel by handle, id, handler or channel, as for subscriptions in memory. False if none was found."""
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
        """The groups of this bus that get messages from the store, with the paths of their subscriptions."""
        return [(pump.group, pump.entity) for pump in list(self._pumps.values())]

    def refuse_blocked(self) -> None:
        """Raise BusClosed in all blocked publishers."""
        self._publishing.stop()

    def stop(self) -> None:
        """Claim no more messages, and release those that no handler has seen."""
        # First: the settlements of running handlers would otherwise store blocked publishes of a bus that is closing.
        self.refuse_blocked()
        for pump in list(self._pumps.values()):
            pump.stop()

    def _make(self, kind: int, name: str) -> None:
        """Create an entity in the store; no change if it exists."""
        _commit_later(self._queues.store.apply([declaration(kind, name, {}, self._queues.store)]))


def _commit_later(pending: Pending[list[object]] | Pending[object] | Pending[None] | Pending[int]) -> None:
    """Let a change become durable without waiting for it. In the memory of the store it is effective already, and any
    publish that depends on it is committed after it. A store that is elsewhere is waited for: it may refuse."""
    if pending.is_accepted:
        pending.on_done(lambda _: None)
    else:
        pending.wait()


def _log_refusal(channel: str, pending: Pending[Message]) -> None:
    """For a publish that no caller waits for."""
    if pending.error is not None:
        log.warning("a publish to %r that was not awaited has failed: %s", channel, pending.error)


def _check_policy(name: str, config: ChannelConfig) -> None:
    if not DROP_POLICIES[config.drop_policy].is_for_stores:
        possible = " or ".join(repr(other) for other, policy in DROP_POLICIES.items() if policy.is_for_stores)
        raise ConfigInvalid(
            f"persistent channel {name!r} cannot have drop_policy {config.drop_policy!r}: it evicts no stored message",
            f"use {possible}, or persistent=False",
        )


def _start(start: object) -> tuple[int, int]:
    """Where a new group starts reading: after this sequence number, and not before this instant."""
    if start is None or start == "end":
        return 2**62, 0
    if start == "beginning":
        return 0, 0
    if isinstance(start, datetime):
        return 0, instant_ns(start)
    if isinstance(start, int) and not isinstance(start, bool) and 0 <= start < 2**63:
        return start, 0
    raise ConfigInvalid(f"start {start!r} is not valid", "use 'beginning', 'end', a sequence number or a datetime")


def _default_group(store: Store, channel: str, handler: object, module: str | None) -> str:
    """The group of a handler without `group=`. One that the store has under the former name keeps that name.

    A group with another name would begin at its own position, and the messages of the old one would wait for ever.
    """
    prefix = "" if module is None else f"{module}."
    former = f"{prefix}{former_durable_name(handler)}"
    if store.catalog.find(subscription_path(channel, former)) is not None:
        return former
    return f"{prefix}{durable_name(handler)}"
