"""Which messages close() waits for, and which it reports as lost.

    message                                                    close()
    in-flight: a handler has it                                waits for it
    backlog of a group with a handler that can run             waits for it, unless the bus is stopped
    retry that is due within RETRY_WAIT_S                      waits for it, unless the bus is stopped
    retry that is due later                                    reports it
    kept by a channel without a subscriber                     reports it
    not received, scheduled or deferred, in a store in memory  reports it
    in a durable store                                         leaves it there: it is delivered after the next start

The wait has no limit of its own: `Closing` has the timeouts of the callers. It logs every PROGRESS_S what it waits for.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from unibus.bus.execution.executors import HandlerExecutors
from unibus.bus.execution.retries import PendingRetries
from unibus.bus.persistent.channels import DurableChannels
from unibus.bus.pubsub.delivery import SlotRunner
from unibus.bus.pubsub.exchange import Exchange, is_internal
from unibus.bus.pubsub.group import Group
from unibus.bus.pubsub.registry import Registry
from unibus.bus.shutdown.closing import Closing
from unibus.counting import counted
from unibus.errors import BusError
from unibus.safe_log import SafeLogger
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.store import EntityInfo, Store

log = SafeLogger("unibus")

PROGRESS_S: Final = 5.0
"""How often the log says what close() waits for."""
RETRY_WAIT_S: Final = 5.0
"""close() does not wait for a retry that is due later than this: backoff can take hours."""
STALL_S: Final = RETRY_WAIT_S + 1.0
"""Only retries are pending, and none became due for this long: their clock does not move (a virtual clock in a test),
so waiting longer is useless."""
SHOWN_MAX: Final = 10
"""How many channels one log line names."""
GROUPS_SHOWN: Final = 3

# What a group still has to do, in increasing order.
_NOTHING: Final = 0
_RETRIES: Final = 1
_HANDLING: Final = 2


class BusEnd(NamedTuple):
    """The cause of the close, as text for the report of lost messages."""

    what: str
    advice: str = ""


_ADVICE: Final = "; call close(), or use the bus in a `with` block (`async with`)"
CLOSED: Final = BusEnd("the bus closed")
DROPPED: Final = BusEnd("the bus was dropped without close(),", _ADVICE)
EXITED: Final = BusEnd("the program ended without close() of its bus,", _ADVICE)


class Unhandled:
    """The unhandled messages of one bus: waits for them, and reports the rest."""

    def __init__(
        self,
        exchange: Exchange,
        registry: Registry,
        delivery: SlotRunner,
        executors: HandlerExecutors,
        retries: PendingRetries,
        closing: Callable[[], Closing],
    ) -> None:
        self._exchange = exchange
        self._registry = registry
        self._delivery = delivery
        self._executors = executors
        self._retries = retries
        self._closing = closing
        self._seen = (0, 0)  # The last added retry and the number of pending ones, at the last check.
        self._seen_s = 0.0

    # Waiting

    def wait(self) -> None:
        """Wait until no message is left to handle, or until the timeout of a caller."""
        closing = self._closing()
        while not closing.wait_for(self._is_over, PROGRESS_S) and not closing.is_out_of_time():
            waiting = [group for group in self._groups() if self._work_of(group)]
            log.warning(
                "unibus: close() waits for %s; Ctrl-C or close(drain_timeout=…) ends the wait",
                described(waiting, self._retries),
            )

    def _is_over(self) -> bool:
        self._executors.recover()  # A loop that was closed meanwhile does not report that.
        admitted = self._registry.admitted()
        work = max([self._work_of(group) for group in self._groups()], default=_NOTHING)
        if work == _RETRIES:
            return self._has_stalled()
        self._seen = (0, 0)
        # While the last group is checked, its handler may publish to the first one: then `admitted` has changed.
        return work == _NOTHING and self._registry.admitted() == admitted

    def _groups(self) -> list[Group]:
        """All groups except those whose handlers wait in `close()`: they cannot become idle before it returns."""
        spared = self._closing().callers.groups()
        return [group for group in self._registry.groups() if group not in spared]

    def _work_of(self, group: Group) -> int:
        # A retry that is added between the two reads makes `delayed` larger than `retries`: the group counts as busy
        # until the next look. The error is never in the other direction, which would end the wait too early.
        retries = self._retries.of(group)
        backlog, in_flight, delayed = group.counts()
        if delayed > retries:
            # A pump or the listeners wait for the store: a claim, a release or a commit is open.
            return _HANDLING
        if in_flight:
            # Without a consumer: a cancelled subscription whose sync handler still runs. It ends by itself, so wait for
            # it.
            return _HANDLING if not group.consumers or self._can_run(group) else _NOTHING
        if self._delivery.paused or not (backlog or delayed) or not self._can_run(group):
            return _NOTHING
        if backlog:
            return _HANDLING
        # A retry far in the future would block close() for hours: it is reported as undelivered instead.
        return _RETRIES if delayed > self._retries.of(group, int(RETRY_WAIT_S * 1e9)) else _NOTHING

    def _can_run(self, group: Group) -> bool:
        return self._executors.can_run(group, self._closing().callers.is_blocked)

    def _has_stalled(self) -> bool:
        # Any retry that was added or became due is progress, and starts the time again.
        seen = (self._retries.last, len(self._retries))
        now_s = time.monotonic()
        if seen != self._seen:
            self._seen = seen
            self._seen_s = now_s
        return now_s - self._seen_s > STALL_S

    # Reporting

    def report(self, store: Store | None, durable: DurableChannels | None, end: BusEnd) -> None:
        """Log the unhandled messages: as a warning if they are lost, as information if a durable store has them."""
        stored = [] if durable is None else durable.groups_here()
        left = self._left_in_groups([group for group, _ in stored], end) + self._left_on_channels()
        if store is not None and store.durability == Durability.D0:
            left += _left_in(store)
        if left:
            total = sum(count for count, _ in left)
            log.warning("%s with %s undelivered: %s%s", end.what, counted(total, "message"), _listed(left), end.advice)
        if store is not None and store.durability != Durability.D0 and log.is_enabled_for(logging.INFO):
            _log_stored(store, [entity for _, entity in stored])

    def _left_in_groups(self, stored: list[Group], end: BusEnd) -> list[tuple[int, str]]:
        """Backlog, retries, and messages of handlers that were left running.

        Not counted: handlers that wait in `close()`, and those on worker threads of a bus that is garbage. They finish.
        """
        callers = Counter(id(group) for group in self._closing().callers.groups())
        left = []
        for group in self._registry.groups():
            if group not in stored:
                backlog, in_flight, delayed = group.counts()
                if end is DROPPED and self._executors.is_on_workers(group):
                    in_flight = 0
                count = backlog + delayed + max(0, in_flight - callers[id(group)])
                if count:
                    left.append((count, f"{count} of {where(group)}"))
        return left

    def _left_on_channels(self) -> list[tuple[int, str]]:
        """Messages kept for a first subscriber. Dead-lettered ones are not counted: each was logged before."""
        kept = [
            (channel.kept.size, channel.name)
            for channel in list(self._exchange.channels.values())
            if channel.kept.size and not self._is_for_dead_letters(channel.name)
        ]
        return [(count, f"{count} of channel {name!r}, which has no subscriber") for count, name in kept]

    def _is_for_dead_letters(self, name: str) -> bool:
        return is_internal(name) or name in self._registry.dead_letter_queues


def _left_in(store: Store) -> list[tuple[int, str]]:
    """The messages in queues and subscriptions of a store in memory, which are lost with it."""
    try:
        entities = store.entities().wait()
    except BusError:
        return []  # The store has failed, and has logged that.
    held = [info for info in entities if _held(info) and not is_internal(info.name)]
    return [(_held(info), f"{_held(info)} in {info.kind} {info.name!r}{_scheduled(info)}") for info in held]


def _held(info: EntityInfo) -> int:
    return info.active + info.locked + info.scheduled + info.deferred


def _scheduled(info: EntityInfo) -> str:
    return f" ({info.scheduled} scheduled)" if info.scheduled else ""


def _log_stored(store: Store, entities: Iterable[str]) -> None:
    """Log the messages that wait for the groups of this bus in a durable store: they are not lost."""
    for entity in entities:
        try:
            info = store.catalog.entity(entity).wait()
        except BusError:
            return  # The store has failed, and has logged that.
        if info is not None and _held(info):
            log.info(
                "%s of %r %s in %s, to be delivered after the next start",
                counted(_held(info), "message"),
                entity,
                "stays" if _held(info) == 1 else "stay",
                store.url,
            )


def report_unsettled(store: Store, received_from: Iterable[str]) -> None:
    """Log the messages that were received by this bus and not settled: no receiver gets them before their locks end.

    Not released: only their receivers have the lock tokens, and a message object that is still held could not tell that
    it was redelivered. A store in memory ends with its messages, which were counted above.
    """
    if store.durability == Durability.D0:
        return
    for entity in sorted(received_from):
        try:
            info = store.catalog.entity(entity).wait()
        except BusError:
            return  # The store has failed, and has logged that.
        if info is not None and info.locked:
            one = info.locked == 1
            log.warning(
                "%s of %r %s received and not settled: %s redelivered when %s (lock_duration of the queue)",
                counted(info.locked, "message"),
                entity,
                "was" if one else "were",
                "it is" if one else "they are",
                "its lock ends" if one else "their locks end",
            )


def _listed(left: list[tuple[int, str]]) -> str:
    parts = [text for _, text in sorted(left, key=lambda each: -each[0])[:SHOWN_MAX]]
    if len(left) > SHOWN_MAX:
        parts.append(f"and in {counted(len(left) - SHOWN_MAX, 'other place')}")
    return ", ".join(parts)


def described(groups: list[Group], retries: PendingRetries) -> str:
    """The counts of these groups, for a log line."""
    parts = [_described(group, retries.of(group)) for group in groups[:GROUPS_SHOWN]]
    if len(groups) > GROUPS_SHOWN:
        parts.append(f"{counted(len(groups) - GROUPS_SHOWN, 'group')} more")
    return ", ".join(parts) or "the last handler"


def _described(group: Group, retries: int) -> str:
    # `delayed` is not shown: a pump also counts what it has asked the store and is not answered, which is no message.
    backlog, in_flight, delayed = group.counts()
    counts = [
        (in_flight, "running handler", "running handlers"),
        (backlog, "waiting message", "waiting messages"),
        (retries, "retry", "retries"),
    ]
    shown = [counted(count, one, many) for count, one, many in counts if count > 0]
    return f"{' and '.join(shown) or ('an open store call' if delayed else 'the last handler')} of {where(group)}"


def where(group: Group) -> str:
    channel = "a pattern" if group.metrics is None else f"channel {group.metrics.channel!r}"
    return f"{channel} ({group.name})"
