"""Where a message went and why it did not arrive: its events, put together to one tree.

A message may be in many places: a topic hands copies to its subscriptions, a queue forwards, what failed goes to the
dead letters and from there to somewhere else. Each place is a Copy, with the steps that happened there and the copies
that went on from it. A decision writes its events depth first and one after the other, which is how the tree can be put
together again. Only the sequence of events counts: many of them may have the same time.

    what went through an entity is followed by as many arrivals as it says
    an arrival that names its source belongs to that
    what arrived just before something left (dead letter, move, route) is where it went
    a duplicate just behind a queue or subscription that nothing went on from is what a forward came to
    an arrival in a dead-letter queue with a refusal is what the entity of that queue did not accept
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from unibus.core.flow.deadletter import is_sub_queue, sub_queue
from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.entity import (
    KIND_NAMES,
    SUBSCRIPTION,
    SUBSCRIPTIONS,
    TOPIC,
    StoredMessage,
    subscription_path,
)
from unibus.core.lifecycle.state.states import ACTIVE, DEFERRED, LOCKED, SCHEDULED
from unibus.counting import counted
from unibus.stores.seam.store import EntityInfo

Find = Callable[[str, int], StoredMessage | None]

WAITING, IN_FLIGHT, COMPLETED, DEAD, GONE = "waiting", "in flight", "completed", "dead-lettered", "gone"
PASSED_ON, NOT_DELIVERED, UNKNOWN = "passed on", "not delivered", "unknown"

_ARRIVALS: Final = frozenset({"sent", "scheduled", "published", "copied", "duplicate"})
_DEPARTURES: Final = frozenset({"dead_lettered", "moved", "routed"})
_ENDS: Final[dict[str, str]] = {
    "completed": COMPLETED,
    "dead_lettered": DEAD,
    "moved": PASSED_ON,
    "routed": PASSED_ON,
    "expired": NOT_DELIVERED,
    "cancelled": NOT_DELIVERED,
    "purged": NOT_DELIVERED,
    "duplicate": NOT_DELIVERED,
}
_ROUTES: Final = frozenset({"published", "routed"})
_REASONS: Final[dict[str, str]] = {
    "expired": "its time-to-live was over before anybody received it",
    "cancelled": "the scheduled message was cancelled",
    "duplicate": "it was sent before, and known by its id or dedup key",
}
_STATES: Final[dict[int, tuple[str, str]]] = {
    ACTIVE: (WAITING, "nobody has received it yet"),
    LOCKED: (IN_FLIGHT, "a consumer has it, and has not settled it yet"),
    SCHEDULED: (WAITING, "its time has not come yet"),
    DEFERRED: (WAITING, "it was deferred: only receive_deferred gives it"),
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class TraceStep:
    """One thing that happened to a copy, in words."""

    at: datetime
    kind: str
    text: str
    event: Event


@dataclass
class TracedCopy:
    """The message in one place. `reason` says why it was not delivered from there, where it was not.

    `declined` are the subscriptions of a topic that got no copy, each with the reason.
    """

    channel: str
    sequence: int
    steps: list[TraceStep] = field(default_factory=list)
    children: "list[TracedCopy]" = field(default_factory=list)
    outcome: str = UNKNOWN
    reason: str = ""
    declined: list[tuple[str, str]] = field(default_factory=list)

    def walk(self) -> "Iterator[TracedCopy]":
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass
class MessageTrace:
    """What history has about one message. Empty, and falsy, if it has nothing (any more)."""

    message_id: str
    events: list[Event]
    roots: list[TracedCopy]

    def __bool__(self) -> bool:
        return bool(self.events)

    def copies(self) -> list[TracedCopy]:
        """Every place, in the order of the tree."""
        return [copy for root in self.roots for copy in root.walk()]

    def not_delivered(self) -> list[tuple[str, str]]:
        """Where it has not been completed (yet), and why. A dead letter that was brought back and completed is none."""
        found: list[tuple[str, str]] = []
        for copy in self.copies():
            if copy.reason and not _was_mended(copy):
                found.append((copy.channel, copy.reason))
            found += copy.declined
        return found

    @property
    def status(self) -> str:
        """Completed when every copy is; else the first trouble, or that somebody still has it to do."""
        known = [copy for copy in self.copies() if copy.outcome != PASSED_ON and not _went_on(copy)]
        stored = [copy for copy in known if copy.sequence] or known  # A duplicate says nothing of the first.
        ends = [DEAD if _is_dead(copy) else copy.outcome for copy in stored]
        for outcome in (DEAD, IN_FLIGHT, WAITING, NOT_DELIVERED, GONE, UNKNOWN):
            if outcome in ends:
                return outcome
        return COMPLETED if ends else UNKNOWN


def _went_on(copy: TracedCopy) -> bool:
    return copy.outcome == DEAD and bool(copy.children)


def _is_dead(copy: TracedCopy) -> bool:
    """A letter that waits among the dead waits for an operator, not for a consumer."""
    return is_sub_queue(copy.channel) and copy.outcome in (WAITING, IN_FLIGHT)


def _was_mended(copy: TracedCopy) -> bool:
    return copy.outcome == DEAD and any(each.outcome == COMPLETED for each in copy.walk())


def trace_of(
    message_id: str, events: list[Event], find: Find, entities: Callable[[], list[EntityInfo]]
) -> MessageTrace:
    """`find` gives what is still held at a place (channel, sequence), `entities` what there is now."""
    tree = _TraceTree(entities)
    for event in events:
        tree.add(event)
    for copy in tree.copies:
        _conclude(copy, find)
    for copy in tree.copies:
        _explain_refusal(copy)
    _ask_who_declined([copy for copy in tree.copies if copy.steps[-1].kind in _ROUTES], entities)
    return MessageTrace(message_id, events, tree.roots)


class _TraceTree:
    def __init__(self, entities: Callable[[], list[EntityInfo]]) -> None:
        self.roots: list[TracedCopy] = []
        self.copies: list[TracedCopy] = []
        self._entities = entities
        self._places: dict[tuple[str, int], TracedCopy] = {}
        self._expecting: list[
            tuple[TracedCopy, int]
        ] = []  # What went through, and how many arrivals are still to come.
        # The arrivals that were written last, without a gap, and those of them that nothing before them explains.
        self._last: Event | None = None
        self._orphans: list[TracedCopy] = []

    def add(self, event: Event) -> None:
        if not self._is_continued_by(event):
            self._orphans.clear()
        if event.kind in _ARRIVALS:
            copy = self._arrive(event, self._parent(event))
        else:
            copy = self._places.get((event.channel, event.sequence)) or self._arrive(event, None)
            if event.kind in _DEPARTURES:
                self._adopt(copy, event)
            self._orphans.clear()
        self._last = event
        copy.steps.append(TraceStep(_EPOCH + timedelta(microseconds=event.ts), event.kind, _words(event), event))
        if event.kind == "activated":
            self._renumber(copy, event)

    def _is_continued_by(self, event: Event) -> bool:
        """Whether the event may be of the same decision as the one before it.

        Only a dead-letter queue that has to be made first comes in between, and that is no event of the message.
        """
        last = self._last
        if last is None or last.ts != event.ts or last.kind not in _ARRIVALS:
            return False
        return event.seq - last.seq == 1 or (event.seq - last.seq == 2 and is_sub_queue(event.channel))

    def _arrive(self, event: Event, parent: TracedCopy | None) -> TracedCopy:
        copy = TracedCopy(event.channel, 0 if event.kind == "duplicate" else event.sequence)
        self.copies.append(copy)
        if event.kind != "duplicate":
            self._places[event.channel, event.sequence] = copy
        if parent is not None:
            parent.children.append(copy)
        else:
            self.roots.append(copy)
            self._orphans.append(copy)
        if event.kind == "published":
            self._expecting.append((copy, _number(event, "copies")))
        return copy

    def _parent(self, event: Event) -> TracedCopy | None:
        if event.kind == "duplicate":
            return self._forwarder(event)
        while self._expecting and self._expecting[-1][1] == 0:
            self._expecting.pop()
        if self._expecting and self._expecting[-1][0].steps[-1].event.ts == event.ts:
            parent, left = self._expecting[-1]
            self._expecting[-1] = (parent, left - 1)
            return parent
        self._expecting.clear()
        attrs = event.attrs or {}
        return self._places.get((attrs.get("source", ""), _number(event, "source_sequence")))

    def _forwarder(self, event: Event) -> TracedCopy | None:
        """What went through an entity just before, and was forwarded to where it is a duplicate.

        A topic that no subscription of takes the message has no copies either. Of a queue or a subscription, what goes
        through without a copy is always a forward to a duplicate, whatever its settings are by now.
        """
        last = self._last
        if last is None or last.kind != "published" or _number(last, "copies") or last.seq + 1 != event.seq:
            return None
        kinds = [info.kind for info in self._entities() if info.name == last.channel]
        is_subscription = f"/{SUBSCRIPTIONS}/" in last.channel
        forwards = kinds[0] != KIND_NAMES[TOPIC] if kinds else is_subscription
        return self._places.get((last.channel, last.sequence)) if forwards else None

    def _adopt(self, copy: TracedCopy, event: Event) -> None:
        """What just arrived elsewhere, and names no source, came from here.

        That is one copy at most: what went through a topic or an entity that forwards, or an edited message. Another
        message of the same id that was sent just before was sent, and did not go through.
        """
        others = [orphan for orphan in self._orphans if orphan is not copy]
        if not others or (event.kind != "moved" and others[-1].steps[-1].kind != "published"):
            return
        if event.kind != "dead_lettered" and any(child is self.copies[-1] for child in copy.children):
            return  # Its one arrival is known by its source.
        self.roots.remove(others[-1])
        copy.children.append(others[-1])

    def _renumber(self, copy: TracedCopy, event: Event) -> None:
        copy.sequence = _number(event, "new_sequence") or copy.sequence
        self._places[copy.channel, copy.sequence] = copy


def _number(event: Event, name: str) -> int:
    return int((event.attrs or {}).get(name, 0))


def _conclude(copy: TracedCopy, find: Find) -> None:
    """How it ended, or what it waits for."""
    last = next((step.event for step in reversed(copy.steps) if step.kind != "forgotten"), copy.steps[-1].event)
    if last.kind in _ENDS:
        copy.outcome = _ENDS[last.kind]
        copy.reason = _REASONS.get(last.kind, "")
        if last.kind == "dead_lettered":
            copy.reason = last.reason or ""
        elif last.kind == "purged":
            copy.reason = f"removed by hand: {last.reason}"
    elif last.kind == "published":
        copy.outcome = PASSED_ON if _number(last, "copies") or copy.children else NOT_DELIVERED
        copy.reason = "" if copy.outcome == PASSED_ON else "never routed: nobody was subscribed, or no filter matched"
    else:
        entry = find(copy.channel, copy.sequence)
        if entry is None:
            copy.outcome, copy.reason = GONE, "its queue was deleted, or history has forgotten the rest"
        else:
            copy.outcome, copy.reason = _STATES[entry.state]
            if last.kind == "delivered" and entry.state == ACTIVE:
                copy.reason = "its lock has ended, and it waits again"
            elif last.kind == "returned":
                copy.reason = f"it came back ({last.reason}) and waits again"


def _explain_refusal(copy: TracedCopy) -> None:
    """A message that went into the dead letters of an entity instead of through it, or instead of further on."""
    for child in copy.children:
        refusal = _refusal(child.steps[0].event) if child.channel == sub_queue(copy.channel) else ""
        if refusal and copy.outcome == DEAD:
            copy.reason = f"{copy.reason}; {refusal}"
        elif refusal:
            copy.outcome, copy.reason = DEAD, refusal


def _refusal(event: Event) -> str:
    return (event.attrs or {}).get("refusal", "")


def _ask_who_declined(copies: list[TracedCopy], entities: Callable[[], list[EntityInfo]]) -> None:
    """A subscription that was there and got nothing had no rule that wanted the message."""
    infos = entities() if copies else []
    for copy in copies:
        prefix = subscription_path(copy.channel, "")
        at_ns = (copy.steps[-1].event.ts + 1) * 1_000
        got = tuple([child.channel for child in copy.children])
        for info in infos:
            if info.kind != KIND_NAMES[SUBSCRIPTION] or not info.name.startswith(prefix) or info.created_ns > at_ns:
                continue
            if not any([name == info.name or name.startswith(f"{info.name}/") for name in got]):
                since = "; its settings were changed since" if info.updated_ns > at_ns else ""
                copy.declined.append((info.name, f"no rule matched{since}"))
        if copy.declined and copy.outcome == NOT_DELIVERED:
            copy.reason = "never routed: no filter matched"


_WORDS: Final[dict[str, str]] = {
    "sent": "sent, {size}",
    "scheduled": "scheduled for {visible}",
    "published": "went through, {copies}",
    "copied": "arrived",
    "delivered": "delivered to {consumer} (delivery {count})",
    "returned": "came back: {reason}",
    "deferred": "deferred",
    "activated": "its time came, now #{new_sequence}",
    "completed": "completed by {consumer} (delivery {count})",
    "cancelled": "cancelled",
    "expired": "expired",
    "dead_lettered": "dead-lettered: {reason}",
    "routed": "went on",
    "duplicate": "refused as a duplicate",
    "purged": "removed by hand: {reason}",
    "moved": "{action} to {target}",
    "forgotten": "taken out of history",
}


def _words(event: Event) -> str:
    attrs = event.attrs or {}
    visible_us = int(attrs.get("visible_us", 0))
    words = _WORDS.get(event.kind, event.kind).format(
        size=counted(event.size or 0, "byte"),
        count=event.delivery_count,
        reason=event.reason,
        consumer=event.consumer or "a receiver",
        visible=(_EPOCH + timedelta(microseconds=visible_us)).isoformat(" ", "milliseconds") if visible_us else "",
        copies=counted(_number(event, "copies"), "copy", "copies") if "copies" in attrs else "no copies",
        new_sequence=attrs.get("new_sequence", ""),
        action=attrs.get("action", "moved"),
        target=attrs.get("target", ""),
    )
    refusal = _refusal(event)
    return f"{words}: {refusal}" if refusal else words
