"""One bus, put together: the exchange, its channels, its subscriptions, the places where handlers run, and their end.

Everything that both faces share lives here, in calls that never wait; the faces add how to wait.
"""

import asyncio
import logging
import os
import random
import threading
from collections.abc import Callable
from dataclasses import replace

from unibus.bus.aftermath import BusAftermath
from unibus.bus.delivery import Delivery
from unibus.bus.exchange import Exchange
from unibus.bus.group import Consumer, Group, Launcher, notify
from unibus.bus.handlers import Plan
from unibus.bus.loop_thread import LoopThread
from unibus.bus.loops import LoopLauncher
from unibus.bus.pool import Pool
from unibus.bus.quiet import Quiet
from unibus.bus.registry import Registry
from unibus.bus.settings import BusConfig
from unibus.bus.subscriptions import Subscriptions
from unibus.bus.timers import ThreadTimers, Timers
from unibus.clock import SYSTEM_CLOCK, Clock
from unibus.core.atomic import LOCK
from unibus.core.deadletter import sub_queue
from unibus.core.expiry import is_expired
from unibus.core.message import Message
from unibus.core.metrics import MetricsSnapshot, total
from unibus.core.stamp import Stamper, lend_stamper
from unibus.errors import ChannelNotFound

log = logging.getLogger("unibus")


def report(error: BaseException) -> None:
    """What went wrong where nobody can catch it."""
    log.error("in a worker: %r", error, exc_info=error)


def new_stamper(clock: Clock) -> Stamper:
    """A random prefix of 64 bits: unique to this bus, in this process, in this life of it."""
    return Stamper(os.urandom(8).hex() + "-", clock.wall_ns)


lend_stamper(new_stamper(SYSTEM_CLOCK))
os.register_at_fork(after_in_child=lambda: lend_stamper(new_stamper(SYSTEM_CLOCK)))


class HomeLauncher(Launcher):
    """For async handlers that were subscribed outside of any loop: they run on the bus's loop, once it has one."""

    def __init__(self, home: Callable[[], LoopLauncher]) -> None:
        super().__init__()
        self._home = home

    def launch(self, consumer: Consumer) -> None:
        launcher = self._home()
        consumer.launcher = launcher
        launcher.launch(consumer)


class Hub:
    """The parts of one bus."""

    def __init__(self, config: BusConfig, clock: Clock | None = None) -> None:
        clock = clock or SYSTEM_CLOCK
        self.config = config
        self.clock = clock
        self.exchange = Exchange(new_stamper(clock), clock)
        self.registry = Registry(self.exchange, config)
        self.timers: Timers = clock.timers(self.is_resting) or ThreadTimers(clock, report)
        self.aftermath = BusAftermath(self.exchange, self.timers, random.random)
        self.delivery = Delivery(self.aftermath)
        self.pool = Pool(self.delivery, config.worker_count, report)
        self.subscriptions = Subscriptions(self.exchange, self.registry, self)
        self.quiet = Quiet(self.registry, self.aftermath)
        self.home: asyncio.AbstractEventLoop | None = None
        self.adopts_loops = True  # False for the sync face: its callers block, so handlers need a loop of their own.
        self.draining = False
        self._launchers: dict[asyncio.AbstractEventLoop, LoopLauncher] = {}
        self._loop_thread: LoopThread | None = None
        self.exchange.delivery = self.delivery
        self.exchange.steward = self.registry
        self.aftermath.orphaned = self.subscriptions.orphaned
        self.aftermath.dead_letter_queue = self.registry.dead_letter_queue
        self.registry.bury_casualties = self.aftermath.bury
        self.registry.is_insider = self.is_insider

    # Channels

    def queue_size(self, name: str) -> int | None:
        """Messages that wait: the longest of the reliable groups' queues, or what is kept. None for an unknown name."""
        channel = self.exchange.channels.get(name)
        if channel is None:
            return None
        waiting = [len(group.queue) for group in channel.groups if group.bound == 0]
        return max([len(channel.kept), *waiting])

    def pop(self, name: str) -> Message | None:
        """Take the next message by hand: one that is kept, else one that waits for the channel's first group."""
        channel = self.exchange.channels.get(name)
        if channel is None:
            return None
        for queue in [channel.kept, *[group.queue for group in channel.groups if group.bound == 0]]:
            while (message := queue.pop()) is not None:
                notify(channel.take_kept_waiters())
                if not is_expired(message.expires_ns, self.clock.wall_ns()):
                    return message
                self.aftermath.expired("", message)
        return None

    def dead_letters(self, name: str) -> list[Message]:
        with LOCK:
            channel = self.exchange.channels.get(sub_queue(name))
            if channel is None:
                return []
            letters = channel.kept.drain()
            channel.keep(letters)
            return letters

    def metrics(self, name: str | None = None) -> MetricsSnapshot:
        if name is None:
            return total(self.registry.metrics())
        channel = self.exchange.channels.get(name)
        if channel is None:
            raise ChannelNotFound(f"there is no channel {name!r}")
        return total([channel.metrics])

    def set_idempotency(self, ttl_s: float) -> None:
        self.config = replace(self.config, idempotency_ttl=ttl_s)
        self.registry.set_config(self.config)

    def unsubscribe(self, subscription: object) -> bool:
        found = self.subscriptions.find(subscription)
        for each in found:
            each.cancel()
        return bool(found)

    # Where handlers run

    def launcher_for(self, plan: Plan) -> Launcher:
        if not plan.is_async:
            return self.pool
        loop = self._running_loop()
        return HomeLauncher(self.home_launcher) if loop is None else self.launcher_on(loop)

    def _running_loop(self) -> asyncio.AbstractEventLoop | None:
        if not self.adopts_loops:
            return None
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return None

    def launcher_on(self, loop: asyncio.AbstractEventLoop) -> LoopLauncher:
        with LOCK:
            if loop not in self._launchers:
                self._launchers[loop] = LoopLauncher(self.delivery, loop, report, self._is_own(loop))
            return self._launchers[loop]

    def home_launcher(self) -> LoopLauncher:
        """The loop that the bus was entered on, else the running one, else a loop thread of its own."""
        with LOCK:
            if self.home is None or self.home.is_closed():
                self.home = self._running_loop() or self.own_loop()
            return self.launcher_on(self.home)

    def _is_own(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._loop_thread is not None and self._loop_thread.loop is loop

    def own_loop(self) -> asyncio.AbstractEventLoop:
        with LOCK:
            if self._loop_thread is None:
                self._loop_thread = LoopThread()
            return self._loop_thread.loop

    def end_slots(self, consumer: Consumer) -> "list[asyncio.Task[None]]":
        launcher = consumer.launcher
        if not isinstance(launcher, LoopLauncher):
            return []
        if launcher.is_here():
            return launcher.cancel(consumer)
        if not launcher.loop.is_closed():
            launcher.loop.call_soon_threadsafe(launcher.cancel, consumer)
        return []

    def rested(self, group: Group) -> None:
        self.aftermath.rested(group)

    def is_insider(self) -> bool:
        """Whether the caller is one of our handlers while the bus drains: it may still publish."""
        if not self.draining:
            return False
        return self.pool.is_worker() or any(launcher.is_slot() for launcher in self._launchers.values())

    def is_resting(self) -> bool:
        """Whether nothing happens until a timer fires: no message waits for a handler, and none is in one."""
        if self.pool.stopped:
            return True
        admitted = self._admitted()
        busy = any(group.queue.size or group.running for group in self.registry.groups())
        # A group that was looked at first may have got something from one that was looked at last.
        return not busy and self._admitted() == admitted

    def _admitted(self) -> int:
        return sum(channel.sequence for channel in list(self.exchange.channels.values()))

    # Life

    def start(self, worker_count: int | None) -> None:
        if worker_count is not None:
            self.pool.size = BusConfig(worker_count=worker_count).worker_count
        if self.pool.stopped:
            self.pool.start()
            for launcher in list(self._launchers.values()):
                launcher.start()

    def pause(self, timeout_s: float | None) -> bool:
        """Stop handing over. Messages stay where they are; `start` goes on. False if a handler was still busy."""
        for launcher in list(self._launchers.values()):
            launcher.stopped = True
        return self.pool.stop(timeout_s)

    def begin_close(self) -> bool:
        """Refuse new messages, but those that our own handlers publish. False if the bus is closed already."""
        with LOCK:
            first = not self.exchange.closed
            self.exchange.closed = True
            self.draining = first
        for channel in list(self.exchange.channels.values()):
            # Publishers that wait for room look again, and find the bus closed.
            notify(channel.take_kept_waiters())
        return first

    def end_loops(self) -> "list[asyncio.Task[None]]":
        """Cancel all slots; those of the caller's loop are given back to be waited for."""
        self.draining = False
        tasks: list[asyncio.Task[None]] = []
        for launcher in list(self._launchers.values()):
            launcher.stopped = True
            if launcher.is_here():
                tasks += launcher.cancel_all()
            elif not launcher.loop.is_closed():
                launcher.loop.call_soon_threadsafe(launcher.cancel_all)
        return tasks

    def end(self, timeout_s: float | None) -> None:
        """The last step of closing: end every timer and thread. A handler that does not return is left behind."""
        self.timers.stop()
        if not self.pool.stop(timeout_s):
            log.warning("a handler was still busy when the bus closed; its thread was left behind")
        if self._loop_thread is not None:
            self._loop_thread.stop(timeout_s)
        left = sum(len(group.queue) for group in self.registry.groups())
        if left:
            log.warning("the bus closed with %d messages undelivered", left)


class Leash:
    """Stops the workers of a bus that was dropped without being closed. Only the bus itself may hold it."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def __del__(self) -> None:
        if not self._hub.exchange.closed and threading.main_thread().is_alive():
            self._hub.pool.release()
