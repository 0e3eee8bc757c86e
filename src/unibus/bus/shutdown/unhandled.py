"""What a bus that closes still has to handle, and what it leaves unhandled.

    message                                                    closing
    in-flight: a handler has it                                waits for it
    backlog of a group that has a handler which can run        waits for it, unless the bus is stopped
    retry, delivered within RETRY_WAIT_S from now              waits for it, unless the bus is stopped
    retry, delivered later                                     reports it
    kept by a channel without a subscriber                     reports it
    unreceived, scheduled or deferred, in a store in memory    reports it
    stored in a durable store                                  leaves it there: it is delivered after the next start

A wait has no limit of its own: `Closing` has the limits of those who wait. It says every PROGRESS_S what it waits for.
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
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.store import EntityInfo, Store

log = logging.getLogger("unibus")

PROGRESS_S: Final = 5.0
"""How often a wait for handlers says what it waits for."""
RETRY_WAIT_S: Final = 5.0
"""A retry that is delivered later than that is not waited for: backoff can take hours."""
STALL_S: Final = RETRY_WAIT_S + 1.0
"""Only retries wait, and none was delivered for so long: their clock does not move, unlike a real one."""
SHOWN_MAX: Final = 10
"""So many channels are named in one line of the log."""
GROUPS_SHOWN: Final = 3

# What a group still has to do; a higher one includes what a lower one waits for.
_NOTHING: Final = 0
_RETRIES: Final = 1
_HANDLING: Final = 2


class BusEnd(NamedTuple):
    """How a bus came to its end, in the words of the report of what is lost with it."""

    what: str
    advice: str = ""


_ADVICE: Final = "; call close(), or use the bus in a `with` block (`async with`)"
CLOSED: Final = BusEnd("the bus closed")
DROPPED: Final = BusEnd("the bus was dropped without close(),", _ADVICE)
EXITED: Final = BusEnd("the program ended without close() of its bus,", _ADVICE)


class Unhandled:
    """What one bus has to handle before it can close."""

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
        self._seen = (0, 0)  # The last retry that was added, and how many wait.
        self._seen_s = 0.0

    # Waiting

    def wait(self) -> None:
        """Wait until nothing is left to handle, or until the time of those who wait is over."""
        closing = self._closing()
        while not closing.wait_for(self._is_over, PROGRESS_S) and not closing.is_out_of_time():
            waiting = [group for group in self._groups() if self._work_of(group)]
            log.warning(
                "unibus: closing waits for %s; Ctrl-C or close(drain_timeout=…) ends the wait", described(waiting)
            )

    def _is_over(self) -> bool:
        self._executors.recover()  # A closed loop does not report that it was closed.
        admitted = self._registry.admitted()
        work = max([self._work_of(group) for group in self._groups()], default=_NOTHING)
        if work == _RETRIES:
            return self._has_stalled()
        self._seen = (0, 0)
        # A group that was looked at first may have got something from one that was looked at last.
        return work == _NOTHING and self._registry.admitted() == admitted

    def _groups(self) -> list[Group]:
        """All but those whose handlers wait in `close`: they cannot become idle before it returns."""
        spared = self._closing().callers.groups()
        return [group for group in self._registry.groups() if group not in spared]

    def _work_of(self, group: Group) -> int:
        retries = self._retries.of(group)
        backlog, in_flight, delayed = group.counts()
        if delayed > retries:
            # The store has not answered yet: a claim, a release, or a commit that listeners wait for.
            return _HANDLING
        if in_flight:
            return _HANDLING if not group.consumers or self._can_run(group) else _NOTHING
        if self._delivery.paused or not (backlog or delayed) or not self._can_run(group):
            return _NOTHING
        if backlog:
            return _HANDLING
        return _RETRIES if delayed > self._retries.of(group, int(RETRY_WAIT_S * 1e9)) else _NOTHING

    def _can_run(self, group: Group) -> bool:
        return self._executors.can_run(group, self._closing().callers.is_blocked)

    def _has_stalled(self) -> bool:
        seen = (self._retries.last, len(self._retries))
        now_s = time.monotonic()
        if seen != self._seen:
            self._seen = seen
            self._seen_s = now_s
        return now_s - self._seen_s > STALL_S

    # Reporting

    def report(self, store: Store | None, durable: DurableChannels | None, end: BusEnd) -> None:
        """Log what was left: as a warning where it is lost, as information where a store has it."""
        stored = [] if durable is None else durable.groups_here()
        left = self._left_in_groups([group for group, _ in stored], end) + self._left_on_channels()
        if store is not None and store.durability == Durability.D0:
            left += _left_in(store)
        if left:
            total = sum(count for count, _ in left)
            log.warning("%s with %s undelivered: %s%s", end.what, counted(total, "message"), _listed(left), end.advice)
        if store is not None and store.durability != Durability.D0 and log.isEnabledFor(logging.INFO):
            _log_stored(store, [entity for _, entity in stored])

    def _left_in_groups(self, stored: list[Group], end: BusEnd) -> list[tuple[int, str]]:
        """Backlog, retries and what a handler has that was left behind.

        A handler that waits in `close` goes on, and so does one on a worker thread of a bus that was dropped.
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
        """Dead-lettered messages are left out: each was reported when it became one."""
        kept = [
            (channel.kept.size, channel.name)
            for channel in list(self._exchange.channels.values())
            if channel.kept.size and not self._is_for_dead_letters(channel.name)
        ]
        return [(count, f"{count} of channel {name!r}, which has no subscriber") for count, name in kept]

    def _is_for_dead_letters(self, name: str) -> bool:
        return is_internal(name) or name in self._registry.dead_letter_queues


def _left_in(store: Store) -> list[tuple[int, str]]:
    """What queues and subscriptions in memory hold: it ends with the store."""
    try:
        entities = store.entities().wait()
    except BusError:
        return []  # The store has stopped, and has said so.
    held = [info for info in entities if _held(info) and not is_internal(info.name)]
    return [(_held(info), f"{_held(info)} in {info.kind} {info.name!r}{_scheduled(info)}") for info in held]


def _held(info: EntityInfo) -> int:
    return info.active + info.locked + info.scheduled + info.deferred


def _scheduled(info: EntityInfo) -> str:
    return f" ({info.scheduled} scheduled)" if info.scheduled else ""


def _log_stored(store: Store, entities: Iterable[str]) -> None:
    """What waits for the groups of this bus in a durable store: no loss."""
    for entity in entities:
        try:
            info = store.catalog.entity(entity).wait()
        except BusError:
            return  # The store has stopped, and has said so.
        if info is not None and _held(info):
            log.info(
                "%s of %r %s in %s, to be delivered after the next start",
                counted(_held(info), "message"),
                entity,
                "stays" if _held(info) == 1 else "stay",
                store.url,
            )


def _listed(left: list[tuple[int, str]]) -> str:
    parts = [text for _, text in sorted(left, key=lambda each: -each[0])[:SHOWN_MAX]]
    if len(left) > SHOWN_MAX:
        parts.append(f"and in {counted(len(left) - SHOWN_MAX, 'other place')}")
    return ", ".join(parts)


def described(groups: list[Group]) -> str:
    """What these groups are at, for a person."""
    parts = [_described(group) for group in groups[:GROUPS_SHOWN]]
    if len(groups) > GROUPS_SHOWN:
        parts.append(f"{counted(len(groups) - GROUPS_SHOWN, 'group')} more")
    return ", ".join(parts) or "the last handler"


def _described(group: Group) -> str:
    backlog, in_flight, delayed = group.counts()
    counts = [
        (in_flight, "running handler", "running handlers"),
        (backlog, "waiting message", "waiting messages"),
        (delayed, "retry", "retries"),
    ]
    shown = [counted(count, one, many) for count, one, many in counts if count > 0]
    return f"{' and '.join(shown) or 'the last handler'} of {where(group)}"


def where(group: Group) -> str:
    channel = "a pattern" if group.metrics is None else f"channel {group.metrics.channel!r}"
    return f"{channel} ({group.name})"
