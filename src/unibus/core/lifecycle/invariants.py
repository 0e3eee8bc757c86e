"""The invariants of a store's state between two commands, checked in linear time.

    an entity      its four counts add up to its messages, its bytes to theirs; its name finds it
    a message      has exactly one state; active ones are in the ready queue, locked ones have a token and a deadline
    a session      counts its messages; is offered to receivers exactly while it is unlocked and has messages
    a lock         its token is in the index, and finds its message
    the store      counts its entities by kind, and the bytes that it has in memory

A violation is a defect of unibus or a damaged file. The check reads the state and changes nothing; the caller holds the
store's lock. Whether the state agrees with the log is another question: `differences` compares two states.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from unibus.core.lifecycle.state.deadlines import DeadlineItem
from unibus.core.lifecycle.state.entity import SUBSCRIPTION, Entity, Session, StoredMessage
from unibus.core.lifecycle.state.ready_queue import ReadyQueue
from unibus.core.lifecycle.state.state import StoreState
from unibus.core.lifecycle.state.states import ACTIVE, DEFERRED, LOCKED, SCHEDULED, STATE_NAMES

K = TypeVar("K")
_HELD = (ACTIVE, LOCKED, SCHEDULED, DEFERRED)


def violations(state: StoreState) -> list[str]:
    """A text for every invariant that is violated. Empty: all hold."""
    found: list[str] = []
    held_bytes = 0
    for number, entity in state.entities.items():
        found += _entity(state, number, entity)
        # Copies share one bytes object, but each is counted: the count must fall to 0 when all are removed.
        held_bytes += sum(entry.size for entry in entity.entries.values() if entry.data is not None)
    if held_bytes != state.held_bytes:
        found.append(f"the store counts {state.held_bytes} bytes in memory, its messages have {held_bytes}")
    kinds: dict[int, int] = {}
    for entity in state.entities.values():
        kinds[entity.kind] = kinds.get(entity.kind, 0) + 1
    counted = {kind: count for kind, count in state.kinds.items() if count}
    if kinds != counted:
        found.append(f"the store counts {counted} entities by kind, and has {kinds}")
    found += _tokens(state)
    found += [f"the deleted name {name!r} exists" for name in state.retired if state.names.get(name) is not None]
    if state.deciding:
        found.append("a command was not finished")
    return found


def _tokens(state: StoreState) -> Iterator[str]:
    """The index of lock tokens has exactly the locked messages: one more would settle a message that does not exist."""
    locked = {
        entry.token: entry
        for entity in state.entities.values()
        for entry in entity.entries.values()
        if entry.state == LOCKED and entry.token
    }
    # None: no protocol server has asked yet, so the index does not exist.
    indexed = state.tokens
    if indexed is None:
        return
    for token, entry in {**indexed, **locked}.items():
        if token is None or indexed.get(token) is not locked.get(token):
            yield f"the lock token of {entry.entity.name!r} #{entry.sequence} does not agree with the index"


def _orders(entity: Entity) -> Iterator[str]:
    """A peek must find every message once, and in order."""
    sequences = list(entity.entries)
    if sequences != sorted(sequences):
        yield f"{entity.name!r} has its messages in another order than that of their sequences"
    if entity.order is not None and not _covers(entity.order.sequences, entity, sequences):
        yield f"a peek into {entity.name!r} would not see its messages"
    for session in entity.sessions.values():
        if session.order is not None and not _covers(session.order.sequences, entity, sorted(session.entries)):
            yield f"a peek into session {session.id!r} of {entity.name!r} would not see its messages"
    lists = entity.session_lists
    listed = sorted([each.id for each in entity.sessions.values() if each.is_listed()])
    if lists is not None and lists.page(0, len(listed) + 1) != listed:
        yield f"a list of the sessions of {entity.name!r} would not show them"


def _covers(ordered: list[int], entity: Entity, wanted: list[int]) -> bool:
    return ordered == sorted(set(ordered)) and [each for each in ordered if each in entity.entries] == wanted


def _entity(state: StoreState, number: int, entity: Entity) -> Iterator[str]:
    name = entity.name
    if number != entity.number or entity.deleted or state.find_any(name) is not entity:
        yield f"{name!r} is listed as entity {number}, and its name does not find it"
    if entity.kind == SUBSCRIPTION and (entity.topic is None or entity not in entity.topic.subscriptions):
        yield f"{name!r} is not a subscription of its topic"
    if entity.owner is not None and entity.owner.dead is not entity:
        yield f"{name!r} is not the dead-letter queue of {entity.owner.name!r}"
    yield from _orders(entity)
    states = [entry.state for entry in entity.entries.values()]
    counts = {ACTIVE: entity.active, LOCKED: entity.locked, SCHEDULED: entity.scheduled, DEFERRED: entity.deferred}
    for held in _HELD:
        if states.count(held) != counts[held]:
            yield f"{name!r} counts {counts[held]} {STATE_NAMES[held]} messages and has {states.count(held)}"
    size = sum(entry.size for entry in entity.entries.values())
    if size != entity.size_bytes:
        yield f"{name!r} counts {entity.size_bytes} bytes and has {size}"
    # By identity, as sets: a ready queue may have stale items and the same item twice, so only membership is checked.
    ready = {id(entity): _places(entity.waiting)}
    for session in entity.sessions.values():
        ready[id(session)] = _places(session.waiting)
    for sequence, entry in entity.entries.items():
        owner = entity if entry.session is None else entry.session
        for problem in _entry(entity, sequence, entry, ready.get(id(owner), set())):
            yield f"{name!r} #{sequence} {problem}"
    for session in entity.sessions.values():
        for problem in _session(entity, session):
            yield f"session {session.id!r} of {name!r} {problem}"
    if any(session_id not in entity.sessions for session_id in entity.ready):
        yield f"{name!r} offers a session that does not exist"


def _places(waiting: ReadyQueue) -> set[int]:
    return {id(each) for each in waiting.items()}


def _entry(entity: Entity, sequence: int, entry: StoredMessage, ready: set[int]) -> Iterator[str]:
    if entry.sequence != sequence or entry.entity is not entity:
        yield f"is stored as #{entry.sequence} of {entry.entity.name!r}"
    if sequence > entity.sequence:
        yield f"has a sequence that was not assigned yet: the last one is {entity.sequence}"
    if entry.state not in _HELD:
        yield "is stored, and its state is gone"
    if entry.state == ACTIVE and id(entry) not in ready:
        yield "is active and is not in the ready queue: no receiver would get it"
    if (entry.token is not None) != (entry.state == LOCKED):
        yield f"is {STATE_NAMES[entry.state]} with{'out' if entry.token is None else ''} a lock token"
    if entry.session is not None and entry.state == LOCKED and entry.token is not None:
        if entry.session.locked.get(entry.token) is not entry:
            yield "is locked, and its session does not have the lock"
    yield from _timed(entry)


def _timed(item: DeadlineItem) -> Iterator[str]:
    deadline_ns = item.deadline_ns()
    # An entry that is too early is fine: it is sorted in again when it is popped.
    if deadline_ns and (item.timers < 1 or item.timed_ns > deadline_ns):
        yield "has a deadline without a timer"


def _session(entity: Entity, session: Session) -> Iterator[str]:
    entries = [entry for entry in entity.entries.values() if entry.session is session]
    active = sum(entry.state == ACTIVE for entry in entries)
    locked = sum(entry.state == LOCKED for entry in entries)
    if {entry.sequence: entry for entry in entries} != session.entries:
        yield f"lists the messages {sorted(session.entries)}, and has {[entry.sequence for entry in entries]}"
    if (active, locked) != (session.active, len(session.locked)):
        yield f"counts {session.active} active and {len(session.locked)} locked, " + (f"and has {active} and {locked}")
    if (session.id in entity.ready) != (session.token is None and session.active > 0):
        yield (
            "is offered to receivers, and is locked or empty"
            if session.id in entity.ready
            else "is unlocked and has messages, and is not offered to receivers"
        )
    yield from _timed(session)


def sequence_problem(state: StoreState) -> str:
    """A text for the first message with a sequence that its entity has not assigned yet; empty if there is none.

    The one invariant that every recovery checks: not every store has a checksum for both numbers, and a later message
    would overwrite this one.
    """
    for entity in state.entities.values():
        if entity.entries and max(entity.entries) > entity.sequence:
            return f"{entity.name!r} has a message #{max(entity.entries)}, and its last sequence is {entity.sequence}"
    return ""


def differences(state: StoreState, other: StoreState, now_ns: int) -> list[str]:
    """The differences of two states of one store, as texts: the one in memory, and the one that its log describes."""
    found: list[str] = []
    if state.seq != other.seq:
        found.append(f"{state.seq} changes against {other.seq}")
    found += _unlike("the names of deleted entities", state.retired, other.retired)
    found += _unlike("positions", state.positions, other.positions)
    found += _unlike("batches", state.batches.known, other.batches.known)
    if state.batches.evicted_ns != other.batches.evicted_ns:
        found.append(f"batches evicted up to {state.batches.evicted_ns} against {other.batches.evicted_ns}")
    found += _unlike("entities", _entities(state), _entities(other))
    for number, entity in state.entities.items():
        twin = other.entities.get(number)
        if twin is not None:
            found += [f"{entity.name!r}: {each}" for each in _contents(entity, twin, now_ns)]
    return found


def _entities(state: StoreState) -> dict[int, object]:
    return {
        number: (each.name, each.kind, each.settings.given, each.sequence, each.created_ns, each.updated_ns)
        for number, each in state.entities.items()
    }


def _contents(entity: Entity, other: Entity, now_ns: int) -> Iterator[str]:
    yield from _unlike("messages", _saved(entity), _saved(other))
    yield from _unlike("sessions", _sessions(entity), _sessions(other))
    yield from _unlike("dedup keys", _keys(entity, now_ns), _keys(other, now_ns))
    if list(entity.entries) != list(other.entries) and sorted(entity.entries) == sorted(other.entries):
        yield "messages in another order"


def _saved(entity: Entity) -> dict[int, object]:
    return {sequence: entry.as_saved() for sequence, entry in entity.entries.items()}


def _sessions(entity: Entity) -> dict[str, object]:
    return {each.id: each.as_saved() for each in entity.sessions.values() if each.state is not None or each.token}


def _keys(entity: Entity, now_ns: int) -> dict[tuple[str, str], object]:
    """The keys within their window. When an expired one is removed from memory is not in the log."""
    found: dict[tuple[str, str], object] = {}
    for kind, marks in (("sent", entity.marks), ("processed", entity.processed)):
        if marks is not None:
            found.update({(kind, key): at_ns for key, at_ns in marks.items() if marks.has(key, now_ns)})
    return found


def _unlike(what: str, ours: Mapping[K, object], theirs: Mapping[K, object]) -> list[str]:
    """The first few differences: a damaged store may have a million."""
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    if not keys:
        return []
    shown = "; ".join(f"{key}: {ours.get(key)} against {theirs.get(key)}" for key in keys[:3])
    return [f"{what}: {shown}" + (f"; and {len(keys) - 3} more" if len(keys) > 3 else "")]
