"""The runtime of one bus: creates and connects its parts.

    MessageBus, SyncMessageBus ──▶ BusRuntime ──▶ Exchange, Registry, Subscriptions, HandlerExecutors, Drain, Shutdown
                                        └── with a store ──▶ Queues, DurableChannels, Outboxes

No call here waits; the API classes add how to wait. A bus in memory opens a store in memory with its first operation on
queues. BusFinalizer closes a bus that is garbage-collected without close(); at_exit.py one that is open at exit.
"""

import os
import random
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from unibus.bus.build_kind import log_plain_build
from unibus.bus.execution.executors import HandlerExecutors, report
from unibus.bus.execution.outcomes import BusDeliveryOutcomes
from unibus.bus.health import HealthStatus, health_of
from unibus.bus.message_ids import new_id_generator
from unibus.bus.persistent.channels import DurableChannels
from unibus.bus.persistent.free_places import groups_of, unsettled
from unibus.bus.pubsub.backpressure import Backpressure
from unibus.bus.pubsub.delivery import SlotRunner
from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.pubsub.group import INSIDE, Group, wake_all
from unibus.bus.pubsub.registry import Registry
from unibus.bus.queues.operations import Queues
from unibus.bus.queues.receivers import claim
from unibus.bus.settings import BusConfig
from unibus.bus.shutdown import at_exit
from unibus.bus.shutdown.forked import become_forked, refuse
from unibus.bus.shutdown.steps import Shutdown
from unibus.bus.shutdown.unhandled import DROPPED
from unibus.bus.subscriptions.drain import Drain
from unibus.bus.subscriptions.subscriptions import Subscriptions
from unibus.bus.timers import ThreadTimers, Timers
from unibus.capture.child import CaptureChild, capture_folder
from unibus.clock import SYSTEM_CLOCK, Clock
from unibus.core.atomic import LOCK
from unibus.core.envelope.message import Message
from unibus.core.envelope.stamp import set_default_id_generator
from unibus.core.flow.deadletter import sub_queue
from unibus.core.flow.expiry import is_expired
from unibus.core.flow.metrics import MetricsSnapshot, total
from unibus.core.lifecycle.envelope import message_of
from unibus.counting import counted
from unibus.display import without_secrets
from unibus.errors import ChannelNotFound, StoreUnavailable, UsageError
from unibus.stores.opening import open_store
from unibus.stores.seam.forked import on_fork
from unibus.stores.seam.store import ClaimRequest, EntityInfo, Store

if TYPE_CHECKING:
    from unibus.bus.outbox.registry import Outboxes

DROPPED_S: Final = 1.0
"""How long the finalizer of a bus may block its thread. Usually the file is closed long before that."""


# For Message.new() without a bus. In a forked child the generator is replaced: its prefix is random for each process,
# and two processes with the same prefix would count up the same ids.
set_default_id_generator(new_id_generator(SYSTEM_CLOCK))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: set_default_id_generator(new_id_generator(SYSTEM_CLOCK)))


class BusRuntime:
    """The parts of one bus."""

    def __init__(self, config: BusConfig, clock: Clock | None = None) -> None:
        clock = clock or SYSTEM_CLOCK
        self.config = config
        self.clock = clock
        # In the order of their dependencies. The cycles between them are closed below, by callbacks, before any other
        # thread can see the bus.
        self.exchange = Exchange(new_id_generator(clock), clock)
        self.registry = Registry(self.exchange, config)
        # A virtual clock has timers of its own. It calls `_is_resting`, which reads parts that are made below, when a
        # test advances it: not before the constructor has returned.
        self.timers: Timers = clock.timers(self._is_resting) or ThreadTimers(clock, report)
        self.outcomes = BusDeliveryOutcomes(self.exchange, self.timers, random.random)
        self.delivery = SlotRunner(self.outcomes)
        # For the watch of event loops, which measures real time: timers of a virtual clock run only when a test
        # advances it.
        watch_timers = self.timers if isinstance(self.timers, ThreadTimers) else None
        self.executors = HandlerExecutors(self.delivery, config.worker_count, watch_timers, clock.monotonic_ns)
        self.backpressure = Backpressure(self.exchange, self.timers, self._can_handle)
        self.subscriptions = Subscriptions(self.exchange, self.registry, self.executors, self.outcomes)
        self.drain = Drain(self.registry, self.outcomes, self.executors)
        self.shutdown = Shutdown(
            self.exchange, self.registry, self.outcomes, self.delivery, self.executors, self.timers, self.drain
        )
        self.durable: DurableChannels | None = None
        self.on_store: Callable[[], None] | None = None  # Called when a store was opened; tracing wraps it then.
        self._queues: Queues | None = None
        self._outboxes: Outboxes | None = None
        # The cycles: the exchange publishes into the parts that were made with it.
        self.exchange.delivery = self.delivery
        self.exchange.provider = self.registry
        self.exchange.look_again_later = self.backpressure.look_again_later
        self.executors.wake_publishers = self.backpressure.wake_all
        self.outcomes.orphaned = self.subscriptions.orphaned
        self.outcomes.dead_letter_queue = self.registry.dead_letter_queue
        self.registry.dead_letter_evicted = self.outcomes.dead_letter
        self.registry.is_insider = self.is_insider
        # The shutdown and not the runtime, in a weak set: the registration must not keep a forgotten bus alive.
        at_exit.open_buses.add(self.shutdown)
        log_plain_build()
        # Weak: the list of callbacks at a fork lives as long as the process, and would keep the bus alive. `on_fork`
        # forgets the callback with the mark, so the runtime has to hold the mark.
        me = weakref.ref(self)
        self._fork_mark = on_fork(lambda pid: _leave_to_parent(me(), pid))

    # Stores

    def open_store(self, store: object, by_default: bool) -> None:
        """Connect the bus to a store: an open one, or the one of a URL. `by_default`: channels are persistent."""
        folder = capture_folder(store) if isinstance(store, str) else None
        opened = open_store(store, self.clock, self.timers) if isinstance(store, str) else cast(Store, store)
        # From here on every close of this bus closes the store.
        self.shutdown.store = opened
        self._queues = Queues(opened, self.exchange, self.timers, self.config.strict)
        self.durable = DurableChannels(
            self._queues, self.exchange, self.registry, self.executors, self.outcomes, self.backpressure.graph
        )
        self.durable.by_default = by_default
        self.registry.patterns.stored = opened
        self.registry.names.store = opened
        self.registry.names.is_persistent = self.durable.takes
        # Each part checks names against the other: channels against the entities of the store, and queues against the
        # channels in memory.
        self.registry.names.claimed = self._queues.named.clear
        self._queues.check_entity = self.registry.names.check_entity
        self.registry.patterns.is_durable = by_default
        self.shutdown.durable = self.durable
        self.shutdown.received_from = self._queues.received_from
        if folder is not None:
            try:
                self.shutdown.capture = CaptureChild(cast(str, store), folder)
            except OSError as error:
                opened.close()  # The constructor of the bus raises: no other code could close it.
                raise StoreUnavailable(
                    f"the capture into {folder} could not be started: {error.strerror or error}",
                    "leave ?capture= out, or allow this process to start child processes",
                ) from error
        # Last, when everything is connected: tracing wraps the parts as they are now.
        if self.on_store is not None:
            self.on_store()

    def queues(self) -> Queues:
        """The operations on queues. A bus in memory opens a store in memory with the first of them."""
        queues = self._queues
        # Without the lock: `_queues` is set once and never replaced.
        if queues is not None and not self.exchange.closed:
            return queues
        self.registry.check_open("sent or received")
        # Two first operations at the same time must not open two stores: messages of one of them would be lost to
        # receive.
        with LOCK:
            if self._queues is None:
                self.open_store("memory://", False)
        assert self._queues is not None
        return self._queues

    def outboxes(self) -> "Outboxes":
        """The outboxes in databases of the user. Imported on demand: without an outbox sqlite3 is not needed."""
        from unibus.bus.outbox.registry import Outboxes

        queues = self.queues()
        with LOCK:
            if self._outboxes is None:
                self._outboxes = Outboxes(queues.store, self.exchange)
                self.shutdown.outboxes = self._outboxes
        return self._outboxes

    def describe(self) -> str:
        """For the repr of the bus: without a lock, so that it works at any time."""
        queues = self._queues
        place = "memory" if queues is None else without_secrets(queues.store.url)
        # The values may be of different moments, which is good enough for a repr. With a lock, a debugger that shows
        # the bus could block on the thread that it has stopped.
        state = "stopped" if self.delivery.paused else "open"
        if self.exchange.closed:
            state = "closed" if self.shutdown.closing.is_done else "closing"
        return f"{place}, {counted(len(self.exchange.channels), 'channel')}, {state}"

    def has_store(self) -> bool:
        return self._queues is not None

    def health(self, degraded: str) -> HealthStatus:
        store = None if self._queues is None else self._queues.store.health()
        return health_of(self.exchange.closed, self.delivery.paused, degraded, store, len(self.exchange.channels))

    # Channels

    def queue_size(self, name: str) -> int | None:
        """The backlog with retries: of the fullest reliable group, or the kept messages. None for an unknown channel.

        On a persistent channel: the unsettled messages of its slowest group.
        """
        # The store first: a persistent channel also has a Channel in memory, and its groups in the store have the
        # backlog.
        stored = self._stored(name)
        if stored:
            return max(unsettled(info) for info in stored)
        channel = self.exchange.channels.get(name)
        if channel is None:
            return None
        waiting = [group.depth() for group in channel.groups if group.bound == 0]
        return max([len(channel.kept), *waiting])

    def pop(self, name: str) -> Message | None:
        """Remove the next message: a kept one, else one of the channel's first reliable group with a backlog."""
        channel = self.exchange.channels.get(name)
        stored = self._stored(name)
        if stored or channel is None:
            return self._pop_stored(name, stored)
        for queue in [channel.kept, *[group.queue for group in channel.groups if group.bound == 0]]:
            while (message := queue.pop()) is not None:
                # The place is free in any case, also if the message has expired and another one is tried.
                channel.blocked.grant()
                if not is_expired(message.expires_ns, self.clock.wall_ns()):
                    return message
                self.outcomes.expired("", message)
        return None

    def _stored(self, name: str) -> list[EntityInfo]:
        """The groups of a persistent channel in the store; empty for any other channel."""
        if self.durable is None or self._queues is None or not self.durable.takes(name):
            return []
        return groups_of(self._queues.store, name)

    def _pop_stored(self, name: str, stored: list[EntityInfo]) -> Message | None:
        """Remove a message of the first group that has one. It is removed durably when this returns."""
        for info in stored:
            # `groups_of` returns the topic itself as long as the channel has no group and keeps messages for the first
            # one.
            if info.name == name:
                if info.active:
                    raise UsageError(
                        f"cannot receive from channel {name!r}: it has messages, but no consumer group yet",
                        "subscribe first: the first group gets the waiting messages; then pop() or receive()",
                    )
            elif info.active:
                # Without a lock: removed with the claim. `wait` returns when the removal is durable, so a crash
                # afterwards does not deliver the message a second time.
                request = ClaimRequest(info.name, 1, lock=False)
                for claimed in claim(self.queues(), request).wait():
                    return message_of(claimed)
        return None

    def dead_letters(self, name: str) -> list[Message]:
        """The dead-lettered messages of the channel: of its groups in the store, and of its listeners in memory."""
        messages = self._dead_letters_in_memory(name)
        for info in self._stored(name):
            if info.dead:
                messages += self.queues().peek(sub_queue(info.name), info.dead, 0).wait()
        return messages

    def _dead_letters_in_memory(self, name: str) -> list[Message]:
        # Read in place, so that Ctrl-C here cannot lose a dead-lettered message.
        channel = self.exchange.channels.get(sub_queue(name))
        return [] if channel is None else channel.kept.items()

    def metrics(self, name: str | None = None) -> MetricsSnapshot:
        if name is None:
            return total(self.registry.metrics())
        channel = self.exchange.channels.get(name)
        if channel is None:
            raise ChannelNotFound(f"channel {name!r} does not exist")
        return total([channel.metrics])

    def set_idempotency(self, ttl_s: float) -> None:
        self.config = replace(self.config, idempotency_ttl=ttl_s)
        self.registry.set_config(self.config)

    def unsubscribe(self, subscription: object) -> bool:
        found = self.subscriptions.find(subscription)
        for each in found:
            each.cancel()
        return bool(found)

    def _can_handle(self, group: Group) -> bool:
        # For blocked publishers: while this is False no place becomes free, and waiting would never end.
        return not self.delivery.paused and self.executors.can_run(group)

    def _is_resting(self) -> bool:
        return self.delivery.paused or self.drain.is_resting()

    # Start and close

    def is_insider(self) -> bool:
        """Whether the caller is a handler of this bus while close() drains it: it may still publish."""
        consumer = INSIDE.get()
        return self.shutdown.draining and consumer is not None and consumer.bus is self.exchange

    def start(self, worker_count: int | None) -> None:
        # BusConfig checks the number: the same limits and the same error as in the constructor.
        checked = None if worker_count is None else BusConfig(worker_count=worker_count).worker_count
        self.executors.start(checked)
        # Slots gave up while the bus was stopped, and publishes woke none: wake the backlog once.
        for group in self.registry.groups():
            wake_all(group)


def _leave_to_parent(runtime: BusRuntime | None, pid: int) -> None:
    """In a forked child: reject everything, and deliver nothing. Takes no lock: a thread of the parent may have held
    it at the fork, and no thread of the child releases it (stores/seam/forked.py)."""
    if not isinstance(runtime, BusRuntime):
        return  # The child of a child: it is a ForkedRuntime already.
    # The flags first, and plain assignments only: from here on every call of the child is rejected, also one that fails
    # in the steps below.
    runtime.exchange.closed = True
    runtime.delivery.paused = True
    runtime.executors.pool.stopped = True
    runtime.registry.opened_by = pid
    if runtime._queues is not None:
        runtime._queues.renewals.leave_to_parent(partial(refuse, pid))
    if runtime.shutdown.capture is not None:
        runtime.shutdown.capture.leave_to_parent()
    runtime.shutdown.closing.is_done = True  # The child has nothing to close, now or at its exit.
    become_forked(runtime, runtime.exchange, runtime.registry, runtime.shutdown, pid)


class BusFinalizer:
    """Closes a bus that becomes garbage without close(), or after an interrupted one. Only the bus may refer to it."""

    def __init__(self, runtime: BusRuntime) -> None:
        self._runtime = runtime

    def __del__(self) -> None:
        # Runs at any point of any thread, with any lock held: see Closing.release. After the main thread has ended,
        # at_exit.py has closed the bus.
        shutdown = self._runtime.shutdown
        closing = shutdown.closing
        if not closing.is_done and threading.main_thread().is_alive():
            if not closing.is_at_work():
                shutdown.end = DROPPED
            closing.release(DROPPED_S)
