"""Backpressure: a publisher waits on a full channel whose drop_policy is `block`, or that was created implicitly.

    block (register) ──▶ try ──admitted──▶ unblock, return
                          ▲ │ FULL
                          │ ▼
                          │ may it wait? ──no──▶ unblock, raise QueueFull at once
                    woken │ │ yes
                          │ ▼
                          wait until the timeout ──▶ unblock, raise QueueFull

A publisher registers first, then tries, and only then waits. In another order a place that becomes free between the
try and the registration would wake no publisher, and this one could wait for ever. blocked.py decides which publisher
gets a free place.

It may not wait where no place can become free for it:
- the settings have changed, or the batch is larger than the bound;
- it is a handler, and the channel's handlers wait for it (wait_graph.py);
- no handler of a full group can run: the bus is stopped, or its event loop does not run. Only on implicit channels: a
  created one may be emptied by `pop`, or by a subscriber that comes later.

This is checked before each wait, by whatever the publisher is woken. What no side reports is found by the timer that
looks at the channel every second while a publisher is blocked.
"""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from unibus.bus.pubsub.blocked import BlockedPublisher
from unibus.bus.pubsub.channel import DUPLICATE, FULL, Channel
from unibus.bus.pubsub.exchange import Exchange, FullReason
from unibus.bus.pubsub.group import Group
from unibus.bus.pubsub.wait_graph import WaitGraph
from unibus.clock import Timers
from unibus.core.atomic import LOCK
from unibus.core.envelope.message import Message

LOOK_AGAIN_NS: Final = 1_000_000_000
"""How often a channel with blocked publishers is looked at, for what no side reports: messages expire, an event loop
stops or is closed, a new subscription closes a cycle."""


class BlockedThread(BlockedPublisher):
    """A blocked thread."""

    def __init__(self, size: int) -> None:
        super().__init__(size, is_prompt=True)
        self.freed = threading.Event()

    def wake(self) -> bool:
        self.freed.set()
        return True

    def can_run(self) -> bool:
        return True


class BlockedTask(BlockedPublisher):
    """A blocked task. Its event loop may be busy for long; a stopped or closed loop may never run the task again."""

    def __init__(self, size: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(size, is_prompt=False)
        self.freed = asyncio.Event()
        self._loop = loop

    def wake(self) -> bool:
        # A closed loop raises, a stopped one accepts the call and may never run it. Both mean: do not count on this
        # task.
        try:
            self._loop.call_soon_threadsafe(self.freed.set)
        except RuntimeError:
            return False  # The loop is closed.
        return self.can_run()

    def can_run(self) -> bool:
        return self._loop.is_running()


class Backpressure:
    """Waits for free places on the channels of one bus. `can_handle`: whether a group's messages can be handled now."""

    def __init__(self, exchange: Exchange, timers: Timers, can_handle: Callable[[Group], bool]) -> None:
        self.graph = WaitGraph(exchange)
        self._exchange = exchange
        self._timers = timers
        self._can_handle = can_handle

    def post(self, channel: Channel, messages: list[Message], timeout_s: float | None) -> None:
        """Block the thread until the channel has admitted all messages. Raises QueueFull, RateLimited or BusClosed."""
        # Hold no lock of our own while posting: the thread that wakes this one may hold the lock of the bus (deadlock).
        publisher = BlockedThread(len(messages))
        deadline_ns = None if timeout_s is None else self._exchange.monotonic_ns() + int(timeout_s * 1e9)
        group = self.graph.current_group()
        # `block` is inside the try: Ctrl-C just after the registration must not leave a publisher in the queue that
        # never tries, because the places reserved for it would be lost to all others.
        try:
            self._exchange.block(channel, publisher)
            while not self._try(channel, messages, publisher):
                self._check(channel, messages, publisher, group)
                left_s = None if deadline_ns is None else (deadline_ns - self._exchange.monotonic_ns()) / 1e9
                if (left_s is not None and left_s <= 0) or not publisher.freed.wait(left_s):
                    raise self._timed_out(channel, messages, timeout_s)
                # Clear before the try, not after: a wake-up during the try then ends the next wait at once, and is not
                # erased.
                publisher.freed.clear()
        finally:
            self._end(channel, publisher, group)

    async def post_async(self, channel: Channel, messages: list[Message], timeout_s: float | None) -> None:
        """The same for a task: it awaits and does not block the event loop."""
        publisher = BlockedTask(len(messages), asyncio.get_running_loop())
        group = self.graph.current_group()
        try:
            self._exchange.block(channel, publisher)
            # A timeout or a cancellation can only arrive at an await, and the try has none: the batch is either
            # admitted, or nothing was published. The `finally` passes an unused granted place to the next publisher.
            async with asyncio.timeout(timeout_s):
                while not self._try(channel, messages, publisher):
                    self._check(channel, messages, publisher, group)
                    await publisher.freed.wait()
                    publisher.freed.clear()
        except TimeoutError:
            raise self._timed_out(channel, messages, timeout_s) from None
        finally:
            self._end(channel, publisher, group)

    def _end(self, channel: Channel, publisher: BlockedPublisher, group: Group | None) -> None:
        channel.unblock(publisher)
        if group is not None:
            self.graph.leave(group, publisher)

    def _try(self, channel: Channel, messages: list[Message], publisher: BlockedPublisher) -> bool:
        """Post if the publisher has a granted place, or gets one from this call. False: it has to wait.

        Called by a publisher that has just registered, or was woken.
        """
        self._exchange.channel(channel.name)  # Raises BusClosed if the bus was closed meanwhile.
        blocked = channel.blocked
        if not blocked.has_place(publisher):
            blocked.resume(publisher)
            if not blocked.has_place(publisher):
                return False
        verdict = self._exchange.post_many(channel, messages, True, publisher)
        if verdict == FULL:
            blocked.wait_again(publisher)
            if channel.has_filter:
                # The messages of the next publisher may go to other groups, which may have free places.
                blocked.grant_after(publisher)
            return False
        if verdict > DUPLICATE:
            raise self._exchange.refusal(channel, one_or_all(messages), verdict)
        return True

    def _check(
        self, channel: Channel, messages: list[Message], publisher: BlockedPublisher, group: Group | None
    ) -> None:
        """Raise QueueFull if the publisher may not wait. Before each wait: all of it may change meanwhile."""
        if not may_wait(channel, messages):
            raise self._exchange.refusal(channel, one_or_all(messages), FULL)
        stuck = self._unhandled_group(channel, len(messages))
        if stuck is not None:
            raise self._refusal(channel, messages, not_handled(stuck))
        cycle = [] if group is None else self.graph.enter(group, publisher, channel)
        if cycle:
            raise self._refusal(channel, messages, cyclic(cycle))

    def _unhandled_group(self, channel: Channel, size: int) -> Group | None:
        """A group of an implicit channel without places for `size` messages, and whose backlog cannot be handled now.

        With filters the message may be for other groups, so all groups without a place have to be like that.
        """
        if channel.declared:
            return None
        needed = 1 if channel.has_filter else size
        full = [
            group for group in channel.routes if group.is_bounded_here() and channel.max_size - group.depth() < needed
        ]
        unhandled = [group for group in full if not self._can_handle(group)]
        if not unhandled or (channel.has_filter and len(unhandled) < len(full)):
            return None
        return unhandled[0]

    def _timed_out(self, channel: Channel, messages: list[Message], timeout_s: float | None) -> Exception:
        return self._refusal(channel, messages, timed_out(timeout_s or 0.0))

    def _refusal(self, channel: Channel, messages: list[Message], reason: FullReason) -> Exception:
        return self._exchange.refusal(channel, one_or_all(messages), FULL, reason)

    # Looks at the channel again, for what no side reports

    def look_again_later(self, channel: Channel) -> None:
        """A publisher is blocked: look at the channel every second, as long as one is."""
        with LOCK:
            if channel.is_looked_at:
                return
            channel.is_looked_at = True
        self._timers.after(LOOK_AGAIN_NS, partial(self._look, channel))

    def _look(self, channel: Channel) -> None:
        channel.is_looked_at = False  # Before the count: a publisher that comes after this sets a timer itself.
        if channel.blocked.count:
            channel.blocked.look_again()
            if self._unhandled_group(channel, 1) is not None or self.graph.has_cycle_through(channel):
                channel.blocked.wake_all()  # Those that may not wait any more raise, the others wait again.
            self.look_again_later(channel)

    def wake_all(self) -> None:
        """The bus is stopped or closed: every blocked publisher checks whether it may still wait."""
        for channel in list(self._exchange.channels.values()):
            channel.blocked.wake_all()


def may_wait(channel: Channel, messages: list[Message]) -> bool:
    """Whether the settings of the channel let a publisher of these messages wait."""
    fits = channel.max_size == 0 or len(messages) <= channel.max_size
    return fits and channel.waits


def one_or_all(messages: list[Message]) -> object:
    """What the error of a rejected publish carries: the message, or the list of them."""
    return messages[0] if len(messages) == 1 else messages


def on_a_loop() -> bool:
    """Whether an event loop runs in this thread: code that waits here would block it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def timed_out(timeout_s: float) -> FullReason:
    return FullReason(
        f", also after {timeout_s:g} s",
        "make the handler faster, raise its concurrency, or create the channel with a larger max_queue_size, a longer "
        "block_timeout or another drop_policy",
    )


def not_handled(group: Group) -> FullReason:
    return FullReason(
        f", and no handler of group {group.name!r} can take one",
        "call start() if the bus was stopped; an async handler needs the event loop that it was subscribed on to run",
    )


def cyclic(names: list[str]) -> FullReason:
    return FullReason(
        ", and its handlers wait for the handler that publishes",
        f"the channels form a cycle: {' → '.join(repr(name) for name in names)}; create one of them with "
        "max_queue_size=0 or drop_policy='drop_old', or publish to it from outside of a handler",
    )
