"""Reconstructs the path of one message, and why it was not delivered: a tree from the events of its history.

A message may be in many entities: a topic copies it to its subscriptions, a queue forwards it, a failure moves it to a
dead-letter queue, and a recovery from there to another entity. Each stay in an entity is a TracedCopy, with its steps
and the copies that were made from it. One change of the store writes its events depth first and without a gap, so their
order gives the tree back. Only the sequence of events counts: many may have the same time.

    a "published" event is followed by as many arrivals as its `copies` says
    an arrival that names its source is a child of that source
    an arrival just before a departure (dead_lettered, moved, routed) is where the message went
    a duplicate just after a queue or subscription that passed on no copy is the target of its forward
    an arrival in a dead-letter queue with a refusal was not accepted by the entity of that queue
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
    subscription_path,
)
from unibus.core.lifecycle.state.states import ACTIVE, DEFERRED, LOCKED, SCHEDULED
from unibus.counting import counted
from unibus.display import NAME_CHARS_MAX, described, html_table, quoted, shortened
from unibus.stores.seam.message_record import MessageRecord
from unibus.stores.seam.store import EntityInfo

Find = Callable[[str, int], MessageRecord | None]

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
    "expired": "its time-to-live expired before it was received",
    "cancelled": "the scheduled message was cancelled",
    "duplicate": "it is a duplicate of an earlier message with its id or dedup key",
}
_STATES: Final[dict[int, tuple[str, str]]] = {
    ACTIVE: (WAITING, "no consumer has received it yet"),
    LOCKED: (IN_FLIGHT, "a consumer has received it and not settled it yet"),
    SCHEDULED: (WAITING, "its scheduled time is in the future"),
    DEFERRED: (WAITING, "it was deferred: receive it with receive_deferred"),
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class TraceStep:
    """One event of a copy, with a text for humans."""

    at: datetime
    kind: str
    text: str
    event: Event

    def __repr__(self) -> str:
        return described(self, lambda: f"{self.at:%H:%M:%S.%f} {shortened(self.text, 80)}")


@dataclass
class TracedCopy:
    """The message in one entity. `reason` says why it was not delivered there, if it was not.

    `declined` lists the subscriptions of a topic that got no copy, each with the reason.
    """

    channel: str
    sequence: int
    steps: list[TraceStep] = field(default_factory=list)
    children: "list[TracedCopy]" = field(default_factory=list)
    outcome: str = UNKNOWN
    reason: str = ""
    declined: list[tuple[str, str]] = field(default_factory=list)

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"{quoted(self.channel)} #{self.sequence}, {self.outcome}{reason}"

    def walk(self) -> "Iterator[TracedCopy]":
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass
class MessageTrace:
    """The history of one message. Empty, and false, if history has no event of it (any more)."""

    message_id: str
    events: list[Event]
    roots: list[TracedCopy]

    def __bool__(self) -> bool:
        return bool(self.events)

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        name = shortened(self.message_id, NAME_CHARS_MAX)
        if not self.events:
            return f"{name}, no event in history"
        places = counted(len({copy.channel for copy in self.copies()}), "entity", "entities")
        return f"{name}, {self.status}, {counted(len(self.events), 'event')} in {places}"

    def _repr_html_(self) -> str:
        """Its copies, depth first, each with its steps."""
        rows = [row for copy in self.copies() for row in _rows(copy)]
        return html_table(self._describe(), ("entity", "sequence", "time (UTC)", "event"), rows)

    def copies(self) -> list[TracedCopy]:
        """All copies, depth first."""
        return [copy for root in self.roots for copy in root.walk()]

    def not_delivered(self) -> list[tuple[str, str]]:
        """(entity, reason) where it is not completed. A dead-lettered copy that was recovered and completed is not
        listed."""
        found: list[tuple[str, str]] = []
        for copy in self.copies():
            if copy.reason and not _was_recovered(copy):
                found.append((copy.channel, copy.reason))
            found += copy.declined
        return found

    @property
    def status(self) -> str:
        """COMPLETED if every copy is; else the most serious outcome of a copy, DEAD first."""
        known = [copy for copy in self.copies() if copy.outcome != PASSED_ON and not _was_passed_on(copy)]
        stored = [copy for copy in known if copy.sequence] or known  # A duplicate does not change the first message.
        ends = [DEAD if _is_dead_lettered(copy) else copy.outcome for copy in stored]
        for outcome in (DEAD, IN_FLIGHT, WAITING, NOT_DELIVERED, GONE, UNKNOWN):
            if outcome in ends:
                return outcome
        return COMPLETED if ends else UNKNOWN


def _was_passed_on(copy: TracedCopy) -> bool:
    """A dead-lettered copy whose copy in the dead-letter queue is known: the latter counts."""
    return copy.outcome == DEAD and bool(copy.children)


def _is_dead_lettered(copy: TracedCopy) -> bool:
    """A message that waits in a dead-letter queue waits for an operator, not for a consumer."""
    return is_sub_queue(copy.channel) and copy.outcome in (WAITING, IN_FLIGHT)


def _was_recovered(copy: TracedCopy) -> bool:
    return copy.outcome == DEAD and any(each.outcome == COMPLETED for each in copy.walk())


def trace_of(
    message_id: str, events: list[Event], find: Find, entities: Callable[[], list[EntityInfo]]
) -> MessageTrace:
    """Build the trace. `find` gives the stored message of an (entity, sequence), `entities` the present entities."""
    tree = _TraceTree(entities)
    for event in events:
        tree.add(event)
    # Two passes: a refusal changes the outcome of a parent, so all outcomes must be known first.
    for copy in tree.copies:
        _conclude(copy, find)
    for copy in tree.copies:
        _explain_refusal(copy)
    _find_declining([copy for copy in tree.copies if copy.steps[-1].kind in _ROUTES], entities)
    return MessageTrace(message_id, events, tree.roots)


class _TraceTree:
    """Builds the tree from events in the order of history."""

    def __init__(self, entities: Callable[[], list[EntityInfo]]) -> None:
        self.roots: list[TracedCopy] = []
        self.copies: list[TracedCopy] = []
        self._entities = entities
        self._places: dict[tuple[str, int], TracedCopy] = {}
        # A stack of copies that passed through an entity, each with the number of its arrivals that are still to come.
        self._expecting: list[tuple[TracedCopy, int]] = []
        # The last arrival of the present run of events without a gap, and the arrivals of the run without a parent.
        self._last: Event | None = None
        self._orphans: list[TracedCopy] = []

    def add(self, event: Event) -> None:
        # Orphans can only be adopted by a departure of the same change, whose events follow without a gap.
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
        """Whether the event may belong to the same change of the store as the one before it.

        The only event of others in between is the creation of a dead-letter queue.
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
        # The innermost copy that still expects arrivals is the parent: events of one change are written depth first. If
        # the time differs, this event belongs to another change.
        while self._expecting and self._expecting[-1][1] == 0:
            self._expecting.pop()
        if self._expecting and self._expecting[-1][0].steps[-1].event.ts == event.ts:
            parent, left = self._expecting[-1]
            self._expecting[-1] = (parent, left - 1)
            return parent
        self._expecting.clear()
        # Arrivals outside of a routing name their source themselves: a move or a dead-lettered copy.
        attrs = event.attrs or {}
        return self._places.get((attrs.get("source", ""), _number(event, "source_sequence")))

    def _forwarder(self, event: Event) -> TracedCopy | None:
        """The copy that passed through an entity just before and was forwarded to an entity where it is a duplicate.

        A topic without a matching subscription passes on no copy either. But if a queue or a subscription passes on no
        copy, it has always forwarded to a duplicate, whatever its settings are now.
        """
        last = self._last
        if last is None or last.kind != "published" or _number(last, "copies") or last.seq + 1 != event.seq:
            return None
        kinds = [info.kind for info in self._entities() if info.name == last.channel]
        is_subscription = f"/{SUBSCRIPTIONS}/" in last.channel
        forwards = kinds[0] != KIND_NAMES[TOPIC] if kinds else is_subscription
        return self._places.get((last.channel, last.sequence)) if forwards else None

    def _adopt(self, copy: TracedCopy, event: Event) -> None:
        """Make an arrival without a source a child of the copy that departs just after it.

        That is one copy at most: one that passed through a topic or a forwarding entity, or an edited message. A
        message with the same id that was sent just before has a "sent" event, not a "published" one.
        """
        others = [orphan for orphan in self._orphans if orphan is not copy]
        if not others or (event.kind != "moved" and others[-1].steps[-1].kind != "published"):
            return
        if event.kind != "dead_lettered" and any(child is self.copies[-1] for child in copy.children):
            return  # Its one arrival is already a child, because it names its source.
        self.roots.remove(others[-1])
        copy.children.append(others[-1])

    def _renumber(self, copy: TracedCopy, event: Event) -> None:
        copy.sequence = _number(event, "new_sequence") or copy.sequence
        self._places[copy.channel, copy.sequence] = copy


def _rows(copy: TracedCopy) -> list[tuple[object, ...]]:
    """A copy in a table of a notebook: its outcome, its steps, and the subscriptions that got no copy."""
    head = (
        copy.channel,
        copy.sequence or None,
        None,
        f"{copy.outcome}: {copy.reason}" if copy.reason else copy.outcome,
    )
    steps = [("", None, f"{step.at:%Y-%m-%d %H:%M:%S.%f}", step.text) for step in copy.steps]
    return [head, *steps, *[(name, None, None, reason) for name, reason in copy.declined]]


def _number(event: Event, name: str) -> int:
    return int((event.attrs or {}).get(name, 0))


def _conclude(copy: TracedCopy, find: Find) -> None:
    """Set the outcome: how the copy ended, or what it waits for."""
    # "forgotten" is about history and not about delivery: the event before it says how the copy ended.
    last = next((step.event for step in reversed(copy.steps) if step.kind != "forgotten"), copy.steps[-1].event)
    if last.kind in _ENDS:
        copy.outcome = _ENDS[last.kind]
        copy.reason = _REASONS.get(last.kind, "")
        if last.kind == "dead_lettered":
            copy.reason = last.reason or ""
        elif last.kind == "purged":
            copy.reason = f"removed by an operator: {last.reason}"
    elif last.kind == "published":
        copy.outcome = PASSED_ON if _number(last, "copies") or copy.children else NOT_DELIVERED
        copy.reason = "" if copy.outcome == PASSED_ON else "not routed: there was no subscription, or no filter matched"
    else:
        entry = find(copy.channel, copy.sequence)
        if entry is None:
            copy.outcome, copy.reason = GONE, "its queue was deleted, or history was pruned"
        else:
            copy.outcome, copy.reason = _STATES[entry.state]
            if entry.state == LOCKED:
                ends = datetime.fromtimestamp(entry.locked_until_ns / 1e9, UTC)
                copy.reason = f"{copy.reason}; its lock ends at {ends:%Y-%m-%d %H:%M:%S} UTC"
            if last.kind == "delivered" and entry.state == ACTIVE:
                copy.reason = "its lock expired, and it waits for redelivery"
            elif last.kind == "returned":
                copy.reason = f"it was returned ({last.reason}) and waits for redelivery"


def _explain_refusal(copy: TracedCopy) -> None:
    """Give the reason of a message that an entity moved to its dead-letter queue instead of accepting or forwarding
    it."""
    for child in copy.children:
        refusal = _refusal(child.steps[0].event) if child.channel == sub_queue(copy.channel) else ""
        if refusal and copy.outcome == DEAD:
            copy.reason = f"{copy.reason}; {refusal}"
        elif refusal:
            copy.outcome, copy.reason = DEAD, refusal


def _refusal(event: Event) -> str:
    return (event.attrs or {}).get("refusal", "")


def _find_declining(copies: list[TracedCopy], entities: Callable[[], list[EntityInfo]]) -> None:
    """Fill in `declined`: a subscription that existed and got no copy had no matching rule."""
    infos = entities() if copies else []
    for copy in copies:
        prefix = subscription_path(copy.channel, "")
        # Events have microseconds, entities nanoseconds: the end of that microsecond, so that a subscription created
        # just before counts.
        at_ns = (copy.steps[-1].event.ts + 1) * 1_000
        got = tuple([child.channel for child in copy.children])
        for info in infos:
            if info.kind != KIND_NAMES[SUBSCRIPTION] or not info.name.startswith(prefix) or info.created_ns > at_ns:
                continue
            if not any([name == info.name or name.startswith(f"{info.name}/") for name in got]):
                since = "; its settings were changed since" if info.updated_ns > at_ns else ""
                copy.declined.append((info.name, f"no rule matched{since}"))
        if copy.declined and copy.outcome == NOT_DELIVERED:
            copy.reason = "not routed: no filter matched"


_WORDS: Final[dict[str, str]] = {
    "sent": "sent, {size}",
    "scheduled": "scheduled for {visible}",
    "published": "routed, {copies}",
    "copied": "arrived",
    "delivered": "delivered to {consumer} (delivery {count})",
    "returned": "returned: {reason}",
    "deferred": "deferred",
    "activated": "scheduled time reached, now #{new_sequence}",
    "completed": "completed by {consumer} (delivery {count})",
    "cancelled": "cancelled",
    "expired": "expired",
    "dead_lettered": "dead-lettered: {reason}",
    "routed": "forwarded",
    "duplicate": "refused as a duplicate",
    "purged": "removed by an operator: {reason}",
    "moved": "{action} to {target}",
    "forgotten": "removed from history",
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
