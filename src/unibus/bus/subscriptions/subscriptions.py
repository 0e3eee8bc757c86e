"""Subscriptions in memory: makes groups and consumers, and removes them without losing messages.

    subscribe(channel, handler) ──▶ Group (found or new) ──▶ Consumer ──▶ Subscription, the handle
    cancel                      ──▶ Consumer removed; the last one closes the group, whose backlog returns to a
                                    declared channel or is counted as discarded

All checks come before the first change: a rejected subscribe leaves no group and no channel. The checks of options
with their error texts are here, too, for both kinds of channels (persistent/channels.py).
"""

from collections.abc import Callable, Collection
from typing import TypeVar

from unibus.bus.execution.executors import HandlerExecutors
from unibus.bus.execution.handlers import HandlerPlan, is_async, plan_for
from unibus.bus.execution.outcomes import BusDeliveryOutcomes
from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.pubsub.group import Consumer, Group, wake_all, wake_blocked
from unibus.bus.pubsub.registry import Registry
from unibus.bus.pubsub.subscription import CancelledHandlers, Subscription
from unibus.bus.settings import SubscribeOptions
from unibus.bus.subscriptions.default_groups import DefaultGroups
from unibus.bus.subscriptions.kept import KeptFilter, keeping_channels, takes_internal
from unibus.core.atomic import LOCK
from unibus.core.flow.retry import RetryPolicy
from unibus.core.topics.pattern import EXACT, Pattern
from unibus.errors import ConfigInvalid, HandlerInvalid, NameInvalid
from unibus.limits import QUEUE_SIZE_DEFAULT, RETRY_BACKOFF_DEFAULT, RETRY_DELAY_S_MAX, RETRY_JITTER_DEFAULT
from unibus.near_names import hint_for_name
from unibus.other_words import meant_among

Decorated = TypeVar("Decorated", bound=Callable[..., object])


class Subscriptions:
    """All subscriptions of one bus, by id."""

    def __init__(
        self, exchange: Exchange, registry: Registry, executors: HandlerExecutors, outcomes: BusDeliveryOutcomes
    ) -> None:
        self._exchange = exchange
        self._registry = registry
        self._executors = executors
        self._outcomes = outcomes
        # All three tables change under LOCK, in one step with the groups of the channel: no publish sees half a
        # subscription.
        self._by_id: dict[int, Subscription] = {}
        self._groups: dict[tuple[Pattern, str], Group] = {}
        self._defaults = DefaultGroups()
        self.around: Callable[[Consumer], None] | None = None  # Called with each new consumer; tracing wraps it.

    def add(
        self,
        target: str | Pattern,
        handler: Callable[..., object],
        retry: RetryPolicy,
        concurrency: int,
        options: SubscribeOptions,
        module: str | None = None,
    ) -> Subscription:
        """Subscribe a handler. Raises before any change, or succeeds."""
        self._registry.check_open("subscribed")
        plan = plan_for(handler)
        checked_options(plan, concurrency, options)
        pattern = pattern_of(target, options)
        default = plan.name if module is None else f"{module}/{plan.name}"
        # Before LOCK: it may run `finally` blocks of handlers, which are code of the user.
        self._executors.abandon_closed_loops()  # Requeues their messages, which the new handler may get.
        kept = self._kept_filter(pattern, default, options)
        while True:
            if kept is not None:
                kept.ask()
            with LOCK:
                if kept is None or kept.is_complete():
                    rejected: set[int] = set() if kept is None else kept.rejected
                    made = self._register(pattern, handler, plan, default, retry, concurrency, options, rejected)
                    break
        # Without LOCK: a launch may start a thread or call into an event loop. Kept messages came with `_open`.
        wake_all(made.consumer.group)
        return made

    def _kept_filter(self, pattern: Pattern, default: str, options: SubscribeOptions) -> KeptFilter | None:
        accepts = options.get("filter")
        if accepts is None or options.get("overflow"):  # A lossy group gets no kept messages.
            return None
        return KeptFilter(self._exchange, pattern, options.get("group") or default, accepts)

    def _register(
        self,
        pattern: Pattern,
        handler: Callable[..., object],
        plan: HandlerPlan,
        default: str,
        retry: RetryPolicy,
        concurrency: int,
        options: SubscribeOptions,
        rejected: set[int],
    ) -> Subscription:
        """The atomic part of `add`, under LOCK. All checks that can fail come before the first change.

        A channel made here is not left behind by the error of `_group`: that error needs an existing group, whose
        channel exists, too.
        """
        if pattern.kind == EXACT:
            self._registry.names.check_channel(str(pattern.text))
            self._registry.get_or_make(str(pattern.text))
        given = options.get("group")
        name = given or self._defaults.name_of(pattern, default, handler, self._groups)
        group = self._group(pattern, name, options)
        consumer = self._consumer(group, handler, plan)
        consumer.retry = retry
        consumer.concurrency = concurrency
        consumer.requeue_back = options.get("requeue") == "back"
        subscription = Subscription(pattern, consumer, self.cancel)
        self._by_id[subscription.id] = subscription
        # The consumer before the route: a message that arrives at once finds a slot to claim.
        group.add(consumer)
        self._open(pattern, group, rejected)
        if not given:
            self._defaults.add(pattern, name, default, handler)
        return subscription

    def find(self, wanted: object) -> list[Subscription]:
        """Find by handle or id; or all subscriptions of one handler, channel or pattern."""
        # By handler with ==: a traced handler is equal to the one that it wraps (otel/handlers.py), and a bound method
        # to itself at each access.
        if isinstance(wanted, (int, Subscription)):
            found = self._by_id.get(wanted if isinstance(wanted, int) else wanted.id)
            return [] if found is None else [found]
        if isinstance(wanted, str):
            return [each for each in self.all() if each.channel == wanted]
        return [each for each in self.all() if wanted == each.consumer.handler]

    def all(self) -> list[Subscription]:
        return list(self._by_id.values())

    def cancel(self, subscription: Subscription) -> CancelledHandlers:
        """Remove a consumer. The last one closes its group; a declared channel then keeps the backlog."""
        self._registry.check_process()
        consumer = subscription.consumer
        with LOCK:
            # The pop decides which of two concurrent cancels does the work.
            if self._by_id.pop(subscription.id, None) is None:
                return CancelledHandlers([])
            group = consumer.group
            group.remove(consumer)
            if not group.consumers:
                self._close(group, subscription.pattern)
        # After LOCK. A cancelled handler requeues its message; if its group is closed, `on_idle` moves that message on.
        tasks = self._executors.end_slots(consumer)
        wake_all(group)  # A slot of this consumer may have been woken for a message that it will not take now.
        wake_blocked(group)  # A closed group holds no place any more, on any channel of its pattern.
        self._outcomes.on_idle(group)
        return CancelledHandlers(tasks)

    def orphaned(self, group: Group) -> None:
        """The backlog of a closed group returns to its declared channel, or is counted as discarded."""
        # Called by `_close`, and again for each message that enters the closed group later (a cancelled handler, a
        # retry). Another group of the channel has a copy of its own, so only a channel without any group keeps the
        # message.
        with LOCK:
            for message in group.queue.drain():
                channel = self._exchange.channels.get(message.channel)
                others = [] if channel is None else channel.groups
                if channel is not None and channel.declared and not others:
                    # The next group starts to count from the beginning: these attempts were made by a group that no
                    # longer exists.
                    message.delivery_count = 0
                    channel.keep([message])
                else:
                    metrics = self._registry.retired if channel is None else channel.metrics
                    metrics.count("discarded")

    def _group(self, pattern: Pattern, name: str, options: SubscribeOptions) -> Group:
        # A lossy group has a bound of its own; 0 is a reliable group, which the channel bounds.
        found = self._groups.get((pattern, name))
        bound = options.get("queue_size", QUEUE_SIZE_DEFAULT) if options.get("overflow") else 0
        inline = options.get("dispatch") == "inline"
        accepts = options.get("filter")
        if found is None:
            found = Group(next_number(), name, bound)
            found.inline = inline
            found.filter = accepts
        elif (found.bound, found.inline, found.filter) != (bound, inline, accepts):
            raise ConfigInvalid(
                f"group {name!r} exists with another filter, dispatch or overflow",
                "pass the same options for all members of a group, or use another group=",
            )
        return found

    def _consumer(self, group: Group, handler: Callable[..., object], plan: HandlerPlan) -> Consumer:
        consumer = Consumer(next_number(), group, handler, plan.shape)
        consumer.convert = plan.convert
        consumer.name = plan.name
        consumer.bus = self._exchange
        consumer.executor = self._executors.executor_for(plan)
        if self.around is not None:
            # Before the consumer is in its group: no message is delivered to the handler without its wrapper.
            self.around(consumer)
        return consumer

    def _open(self, pattern: Pattern, group: Group, rejected: set[int]) -> None:
        """Route messages to a new group. The first reliable group gets the messages that a declared channel kept."""
        if (pattern, group.name) in self._groups:
            return
        if pattern.kind == EXACT:
            channel = self._registry.get_or_make(str(pattern.text))
            group.metrics = channel.metrics
            self._registry.in_use(channel.name)
            channel.join(group, rejected, by_name=True)
        else:
            group.takes_internal = takes_internal(pattern)
            keeping = keeping_channels(self._exchange, pattern)
            # In this order: `refresh` looks up each number that the index returns, so it must be in the table first;
            # and the version grows last, so that a publisher which sees it finds the new group.
            self._exchange.pattern_groups[group.number] = group
            self._exchange.index.subscribe(group.number, pattern)
            self._exchange.version += 1
            for channel in keeping:  # Also those that keep nothing yet: their routes are outdated now.
                channel.join(group, rejected, by_name=False)
        self._groups[(pattern, group.name)] = group

    def _close(self, group: Group, pattern: Pattern) -> None:
        # First: from now on admission pushes nothing into this group, not even by routes that are outdated.
        group.closed = True
        # Handlers of the group still run, or retries are pending. drain() and close() have to see them, and the channel
        # does not list the group any more.
        if not group.is_idle():
            self._registry.leaving = [*[other for other in self._registry.leaving if not other.is_idle()], group]
        del self._groups[(pattern, group.name)]
        self._defaults.remove(pattern, group.name)
        if pattern.kind == EXACT:
            channel = self._exchange.channels[str(pattern.text)]
            channel.leave(group)
            self._registry.out_of_use(channel)
        else:
            self._exchange.index.remove_peer(group.number)
            del self._exchange.pattern_groups[group.number]
            self._exchange.version += 1
        self.orphaned(group)


_numbers = 0


def next_number() -> int:
    """The next subscription id: from 1, increasing over the whole process."""
    global _numbers
    with LOCK:
        _numbers += 1
        return _numbers


def pattern_of(target: str | Pattern, options: SubscribeOptions) -> Pattern:
    if isinstance(target, Pattern):
        return target
    if not isinstance(target, (str, bytes)):
        raise NameInvalid(f"a channel name must be a str, not {type(target).__name__}", "pass a str or a Pattern")
    kind = options.get("match", EXACT)
    makers = {EXACT: Pattern.exact, "prefix": Pattern.prefix, "wildcard": Pattern.wildcard}
    if kind not in makers:
        raise ConfigInvalid(f"unknown match {kind!r}", "use 'exact', 'prefix' or 'wildcard'")
    return makers[kind](target)


_CHOICES = {"dispatch": ("pool", "inline"), "overflow": ("drop_oldest", None), "requeue": ("front", "back")}


def check_option_names(options: Collection[str]) -> None:
    """Raise ConfigInvalid for an unknown option; the hint names the closest known one. Also for the decorator form."""
    unknown = sorted(set(options) - set(SubscribeOptions.__annotations__))
    if not unknown:
        return
    known = sorted([*SubscribeOptions.__annotations__, "handler", "retry_attempts", "retry_delay", "concurrency"])
    raise ConfigInvalid(
        f"subscribe has no option {unknown[0]!r}", hint_for_name(unknown[0], known, meant=meant_among(known))
    )


def checked_target(channel: object, handler: object) -> str | Pattern:
    """The channel or pattern. Raises for a handler in its place: swapped arguments, or a decorator without a channel.

    Without this check `@bus.subscribe` would replace the function by a decorator, and subscribe nothing.
    """
    if isinstance(channel, (str, Pattern)):
        return channel
    if not callable(channel):
        raise NameInvalid(f"a channel name must be a str, not {type(channel).__name__}", "pass a str or a Pattern")
    name = getattr(channel, "__name__", type(channel).__name__)
    if handler is None:
        what = f"subscribe got the handler {name!r} and no channel"
        raise HandlerInvalid(what, f'pass the channel: subscribe("channel", {name}), or @bus.subscribe("channel")')
    shown = repr(handler) if isinstance(handler, str) else '"channel"'
    raise HandlerInvalid(
        f"subscribe takes the channel first, not the handler {name!r}",
        f"swap the arguments: subscribe({shown}, {name})",
    )


def checked_concurrency(concurrency: object) -> int:
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise ConfigInvalid(
            f"concurrency must be a whole number of 1 or more, not {concurrency!r}", "leave it out for the default, 1"
        )
    return concurrency


def checked_options(plan: HandlerPlan, concurrency: int, options: SubscribeOptions) -> None:
    check_option_names(options)
    for name, choices in _CHOICES.items():
        if options.get(name, choices[0]) not in choices:
            named = " or ".join(repr(choice) for choice in choices)
            raise ConfigInvalid(f"unknown {name} {options.get(name)!r}", f"use {named}")
    checked_concurrency(concurrency)
    if options.get("queue_size", 1) < 1:
        raise ConfigInvalid(f"queue_size must be 1 or more, not {options.get('queue_size')!r}")
    if options.get("dispatch") == "inline" and plan.is_async:
        raise HandlerInvalid(
            f"the async handler {plan.name} cannot have dispatch='inline'",
            "leave dispatch out: an async handler runs on its event loop",
        )
    accepts = options.get("filter")
    if accepts is not None and (not callable(accepts) or is_async(accepts)):
        raise HandlerInvalid(
            f"filter {accepts!r:.80} is not a plain callable",
            "pass a function(message) without async: publish calls it",
        )


def retry_policy(attempts: int, delay_s: float, options: SubscribeOptions) -> RetryPolicy:
    return RetryPolicy(
        attempts,
        delay_s,
        options.get("retry_backoff", RETRY_BACKOFF_DEFAULT),
        max(RETRY_DELAY_S_MAX, delay_s),
        options.get("retry_jitter", RETRY_JITTER_DEFAULT),
    )


def decorator(
    add: Callable[..., object],
    target: str | Pattern,
    retry: RetryPolicy,
    concurrency: int,
    options: SubscribeOptions,
) -> Callable[[Decorated], Decorated]:
    """A decorator that subscribes the function and returns it unchanged."""

    def decorate(handler: Decorated) -> Decorated:
        add(target, handler, retry, concurrency, options)
        return handler

    return decorate
