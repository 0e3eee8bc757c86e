"""After a crash: the content of the store, its history and its acknowledged results must agree.

    history   without a gap, and what was read of it before is still there word for word
    state     every message that history leaves somewhere, there, in that state, with that count and its own body
    answers   all that was answered at the level that this crash spares; every call whole or not at all, and of the
              calls of one thread none without those before it; no event without a call

Each step looks at everything once.
"""

from dataclasses import dataclass, field

from tests.crash.ledger import (
    ABANDONED,
    ACKED,
    DEAD,
    OPEN,
    REASON,
    REFUSED,
    Ledger,
    Mark,
    Op,
    Place,
    body_of,
    mark_of,
    position_of,
)
from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.states import ACTIVE, DEFERRED, LOCKED, SCHEDULED
from unibus.stores.engine.embedded import EmbeddedStore

WINDOW_US = 600 * 1_000_000
"""For how long a store knows a dedup key where nothing else is set."""

ASKED_FOR = frozenset(
    {
        "send",
        "published",
        "delivered",
        "completed",
        "cancelled",
        "deferred",
        "processed",
        "dropped",
        "moved",
        "purged",
        "advanced",
    }
)
"""Kinds of events that only a call can cause. The others come with time or by a rule."""


@dataclass
class Held:
    id: str
    state: int
    count: int = 0
    was_deferred: bool = False
    delayed: bool = False


@dataclass
class Story:
    """The state by history, replayed from its beginning."""

    channels: dict[str, dict[int, Held]] = field(default_factory=dict)
    marks: set[Mark] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)
    ended: dict[Place, tuple[str, str]] = field(default_factory=dict)
    """What is over, with the kind of its last event and its consumer."""
    errors: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    _keys: dict[tuple[str, str], int] = field(default_factory=dict)

    def play(self, event: Event) -> None:
        self.marks.add(mark_of(event))
        if event.consumer:
            self.consumers.add(event.consumer)
        if event.kind == "advanced":
            name, position = position_of(event)
            self.positions[name] = position
            return
        queue = self.channels.setdefault(event.channel, {})
        if event.kind in ("sent", "scheduled", "copied"):
            self._come(queue, event)
        elif event.kind == "dropped":
            self.ended.update(((event.channel, held.id), ("dropped", "")) for held in queue.values())
            del self.channels[event.channel]
        elif event.kind in _MOVES:
            held = queue.get(event.sequence)
            if held is None or held.id != event.message_id or held.state not in _MOVES[event.kind]:
                text = f"event {event.seq}: {event.channel} #{event.sequence} {event.message_id} {event.kind}: {held}"
                (self.doubled if (event.channel, event.message_id) in self.ended else self.errors).append(text)
            else:
                self._move(queue, held, event)

    def _come(self, queue: dict[int, Held], event: Event) -> None:
        if event.sequence in queue:
            self.errors.append(f"event {event.seq}: {event.channel} #{event.sequence} a second time")
        queue[event.sequence] = Held(event.message_id or "", SCHEDULED if event.kind == "scheduled" else ACTIVE)
        key = (event.attrs or {}).get("dedup_key")
        if key is not None:
            before = self._keys.get((event.channel, key))
            if before is not None and event.ts - before < WINDOW_US:
                self.doubled.append(f"event {event.seq}: {event.channel} has key {key!r} twice")
            self._keys[event.channel, key] = event.ts

    def _move(self, queue: dict[int, Held], held: Held, event: Event) -> None:
        attrs = event.attrs or {}
        if event.kind == "delivered":
            held.was_deferred = held.state == DEFERRED
            held.state, held.count = LOCKED, event.delivery_count or 0
        elif event.kind == "returned":
            held.delayed = "visible_us" in attrs
            held.state = DEFERRED if held.was_deferred else SCHEDULED if held.delayed else ACTIVE
        elif event.kind == "deferred":
            held.state = DEFERRED
        elif event.kind == "activated":
            held.state = ACTIVE
            queue[int(attrs["new_sequence"])] = queue.pop(event.sequence)
        else:
            del queue[event.sequence]
            self.ended[event.channel, held.id] = (event.kind, event.consumer or "")


_MOVES = {
    "delivered": {ACTIVE, DEFERRED},
    "returned": {LOCKED},
    "deferred": {LOCKED},
    "activated": {SCHEDULED},
    "completed": {ACTIVE, LOCKED, DEFERRED},
    "cancelled": {SCHEDULED},
    "expired": {ACTIVE},
    "dead_lettered": {ACTIVE, LOCKED, DEFERRED, SCHEDULED},
    "routed": {SCHEDULED},
    "moved": {ACTIVE, DEFERRED, SCHEDULED},
    "purged": {ACTIVE, DEFERRED, SCHEDULED},
}


def audit(store: EmbeddedStore, ledger: Ledger, floor: int) -> Story:
    """Compare everything. `floor` is the last operation that this crash must have spared."""
    found = held_messages(store, ledger)
    read_history(store, ledger, floor)
    story = Story()
    for event in ledger.history:
        story.play(event)
    ledger.findings.wrong += story.errors
    ledger.findings.doubled += story.doubled
    _compare_state(found, story, ledger)
    _compare_positions(store, story, ledger)
    _compare_index(store, ledger)
    _compare_answers(story, ledger, floor)
    _check_places(found, story, ledger)
    return story


def held_messages(store: EmbeddedStore, ledger: Ledger) -> dict[str, dict[int, Held]]:
    """Every message of the store, body and counts looked at."""
    found: dict[str, dict[int, Held]] = {}
    infos = store.entities().wait()
    for info in infos:
        queue: dict[int, Held] = {}
        for seen in store.peek(info.name, 0, 10**9).wait(30):
            queue[seen.sequence] = Held(seen.who.message_id, seen.state, seen.delivery_count)
            if seen.data != body_of(seen.who.message_id):
                ledger.findings.wrong.append(f"{info.name} #{seen.sequence} {seen.who.message_id} has another body")
        if list(queue) != sorted(queue):
            ledger.findings.wrong.append(f"{info.name} is out of order: {list(queue)}")
        found[info.name] = queue
    # Looking may have ended locks, so the counts are taken after that.
    for info in store.entities().wait():
        states = [held.state for held in found[info.name].values()]
        counted = [states.count(state) for state in (ACTIVE, LOCKED, SCHEDULED, DEFERRED)]
        told = [info.active, info.locked, info.scheduled, info.deferred]
        if counted != told or info.dead != len(found.get(info.name + DEAD, ())):
            ledger.findings.wrong.append(f"{info.name} says {told}, {info.dead} dead, and holds {counted}")
        size = sum(len(body_of(held.id)) for held in found[info.name].values())
        if size != info.size_bytes:
            ledger.findings.wrong.append(f"{info.name} says {info.size_bytes} bytes and holds {size}")
    return found


def read_history(store: EmbeddedStore, ledger: Ledger, floor: int) -> None:
    """Take the store's history over into the ledger. What was read before is still the same, as far as it survived."""
    rows, safe = store.history.events_after(0, 10**9)
    known = ledger.history
    first = rows[0].seq if rows else safe + 1
    if first > len(known) + 1 or [row.seq for row in rows] != list(range(first, safe + 1)):
        ledger.findings.wrong.append(f"history from {first} to {safe} has a gap; {len(known)} were known")
        return
    durable = _durable_seq(ledger, floor)
    for mine, theirs in zip(known[first - 1 : durable], rows, strict=False):
        if mine != theirs:
            ledger.findings.wrong.append(f"history has changed: {mine} is now {theirs}")
            break
    ledger.history = known[: first - 1] + rows


def _durable_seq(ledger: Ledger, floor: int) -> int:
    """The last event that was read of those that this crash had to spare."""
    seqs = {mark_of(event): event.seq for event in ledger.history}
    spared = (seqs.get(mark, 0) for op in ledger.ops if op.status == ACKED and op.index <= floor for mark in op.marks)
    return max(spared, default=0)


def _compare_state(found: dict[str, dict[int, Held]], story: Story, ledger: Ledger) -> None:
    for channel in {*found, *story.channels}:
        here, told = found.get(channel, {}), story.channels.get(channel, {})
        for sequence in here.keys() | told.keys():
            one, other = here.get(sequence), told.get(sequence)
            if one is None or other is None or (one.id, one.state, one.count) != (other.id, other.state, other.count):
                ledger.findings.wrong.append(f"{channel} #{sequence} is {one}, and by history {other}")


def _compare_positions(store: EmbeddedStore, story: Story, ledger: Ledger) -> None:
    for name, position in story.positions.items():
        if store.position(name).wait() != position:
            ledger.findings.wrong.append(f"{name!r} is at {store.position(name).wait()}, and by history at {position}")


def _compare_index(store: EmbeddedStore, ledger: Ledger) -> None:
    """A few messages, the oldest and the newest: what the index finds is what reading all of history finds."""
    rows = [event for event in store.history.events_after(0, 10**9)[0] if event.message_id]
    for message_id in {event.message_id for event in (*rows[:2], *rows[-2:])}:
        if store.history.events_of(message_id or "") != [event for event in rows if event.message_id == message_id]:
            ledger.findings.wrong.append(f"the index of history does not find all of {message_id}")


def _compare_answers(story: Story, ledger: Ledger, floor: int) -> None:
    explained: set[Mark] = set()
    opened: set[str] = set()
    survived: list[Op] = []
    ended_lanes: set[int] = set()
    for op in ledger.ops:
        if op.status == REFUSED:
            continue  # If it has happened all the same, it is an event without a call.
        there = _there(op, story, ledger)
        if op.status == ACKED and op.index <= floor and not there:
            ledger.findings.lost.append(f"{op} was answered")
        if there and op.lane in ended_lanes and (op.marks or op.name in story.consumers):
            ledger.findings.half.append(f"{op} has happened, and one before it has not")
        if there:
            survived.append(op)
            explained.update(op.marks)
            if op.name and op.status == OPEN:
                opened.add(op.name)
        elif op.marks:
            ended_lanes.add(op.lane)
    _explain(ledger, explained, opened)
    ledger.keep(survived)


def _there(op: Op, story: Story, ledger: Ledger) -> bool:
    present = [mark in story.marks for mark in op.marks]
    if any(present) and not all(present):
        missing = [mark for mark, here in zip(op.marks, present, strict=True) if not here]
        ledger.findings.half.append(f"{op} without {missing}")
    if op.name and op.status == OPEN:
        return op.name in story.consumers
    return all(present)


def _explain(ledger: Ledger, explained: set[Mark], opened: set[str]) -> None:
    for event in ledger.history:
        mark = mark_of(event)
        if mark[0] == "dropped":
            mark = (mark[0], mark[1].removesuffix(DEAD), "", "")  # They go with their queue.
        caused = mark[0] in ASKED_FOR or mark[3].endswith((ABANDONED, REASON))
        if caused and mark not in explained and event.consumer not in opened:
            ledger.findings.wrong.append(f"no call for {event}")


def _check_places(found: dict[str, dict[int, Held]], story: Story, ledger: Ledger) -> None:
    """The promises, from the answers and the messages alone; history only shows what has expired."""
    places = {(channel, held.id): held.count for channel, queue in found.items() for held in queue.values()}
    unknown = {op.name for op in ledger.ops if op.status == OPEN}
    lapsed = {place for place, (kind, by) in story.ended.items() if kind != "completed" or by in unknown}
    allowed = ledger.asked_to_end() | lapsed
    for op in ledger.ops:
        for place in op.stored:
            if place not in places and place not in allowed:
                ledger.findings.lost.append(f"{place} of {op} is nowhere")
    for place in ledger.gone & places.keys():
        ledger.findings.doubled.append(f"{place} was completed and exists again")
    for place, count in ledger.deliveries.items():
        if places.get(place, count) < count:
            ledger.findings.wrong.append(f"{place} was delivered {count} times, and says {places[place]}")
