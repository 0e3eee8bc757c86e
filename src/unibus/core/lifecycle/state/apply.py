# mypyc: compiled
"""Playing changes: the only way in which the state of a store changes.

A command never touches the state itself. It notes changes here, one after the other; each is played at once and waits
in the book's `fresh` until the store takes it to the journal. At open the journal's changes are played in the same way.
"""

from typing import Final, TypeAlias

from mypy_extensions import i64

from unibus.core.lifecycle.state.changes import (
    Activated,
    Advanced,
    Cancelled,
    Change,
    Completed,
    Copied,
    DeadLettered,
    Declared,
    Deferred,
    Delivered,
    Dropped,
    Duplicated,
    Expired,
    Forgotten,
    Moved,
    Passed,
    Processed,
    Pruned,
    Purged,
    Renewed,
    Returned,
    Routed,
    Sent,
    SessionLeft,
    SessionStated,
    SessionTaken,
)
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, Entity, StoredMessage
from unibus.core.lifecycle.state.indexes import (
    enter,
    forget_session,
    leave,
    line_up,
    put,
    refresh_ready,
    remove,
    remove_all,
    state_session,
    touch,
)
from unibus.core.lifecycle.state.state import MARK_PROCESSED, MARK_SENT, StoreState, owner_name
from unibus.core.lifecycle.state.states import ACTIVE, DEFERRED, LOCKED, SCHEDULED, STATE_NAMES, may
from unibus.core.lifecycle.state.weight import CHANGE_WEIGHT, weight_of, weight_of_ids, weight_of_texts
from unibus.core.lifecycle.state.windows import CLOCK, cut_windows
from unibus.errors import DAMAGED_HINT, StoreDamaged

_ENDS: Final = {
    Completed: "completed",
    Expired: "expired",
    DeadLettered: "dead_lettered",
    Cancelled: "cancelled",
    Routed: "routed",
    Purged: "purged",
    Moved: "moved",
}


_End: TypeAlias = Completed | Expired | DeadLettered | Cancelled | Routed | Purged | Moved


def note(book: StoreState, change: Change) -> None:
    """A command's decision: true from now on, and to be written."""
    book.seq += 1
    book.weight += CHANGE_WEIGHT + weight_of_texts(change)
    book.fresh.append(change)
    _play(book, change)


# The three that nearly every message sees, for commands that hold the message: without looking it up again.


def note_sent(book: StoreState, entry: StoredMessage, key: str | None, at_ns: i64, visible_ns: i64) -> None:
    book.seq += 1
    book.weight += CHANGE_WEIGHT
    entry.entity.sent += 1
    data = entry.data
    assert data is not None
    book.fresh.append(
        Sent(
            at_ns,
            entry.entity.number,
            entry.sequence,
            entry.who,
            entry.priority,
            entry.expires_ns,
            visible_ns,
            key,
            data,
            entry.overlay,
            entry.hops,
        )
    )
    _store(book, entry, key, at_ns, visible_ns)


def note_delivered(
    book: StoreState, entry: StoredMessage, count: i64, token: bytes, consumer: str, at_ns: i64, until_ns: i64
) -> None:
    book.seq += 1
    book.weight += CHANGE_WEIGHT + len(consumer)
    entry.entity.delivered += 1
    book.fresh.append(
        Delivered(at_ns, entry.entity.number, entry.sequence, entry.who, count, token, until_ns, consumer)
    )
    _check(book, entry, "delivered")
    _lock(book, entry, count, token, consumer, at_ns, until_ns)


def note_completed(book: StoreState, entry: StoredMessage, count: i64, consumer: str, at_ns: i64) -> None:
    book.seq += 1
    book.weight += CHANGE_WEIGHT + len(consumer)
    entry.entity.completed += 1
    first_ns = entry.first_delivered_ns or at_ns
    book.fresh.append(
        Completed(at_ns, entry.entity.number, entry.sequence, entry.who, count, entry.enqueued_ns, first_ns, consumer)
    )
    _check(book, entry, "completed")
    leave(book, entry)
    remove(book, entry)


def replay(book: StoreState, change: Change) -> None:
    """A decision of the past, from the journal. Not strict, it may be about what is gone by now."""
    book.seq += 1
    book.weight += CHANGE_WEIGHT
    if book.replayed_ns == 0:
        book.replayed_ns = change.at_ns
    if book.strict or change.entity in book.entities or isinstance(change, (Declared, Advanced)):
        _play(book, change)
    elif isinstance(change, Passed):
        _carry(book, change)  # The entity is gone by now; what went on from it is not.


def _play(book: StoreState, change: Change) -> None:
    # The most common first.
    if isinstance(change, Sent):
        _sent(book, change)
    elif isinstance(change, Delivered):
        _delivered(book, change)
    elif isinstance(change, Completed):
        _end(book, change, "completed")
    elif isinstance(change, Copied):
        _copied(book, change)
    elif isinstance(change, Passed):
        _passed(book, change)
    elif isinstance(change, Returned):
        _returned(book, change)
    elif isinstance(change, (Expired, DeadLettered, Cancelled, Routed, Purged, Moved)):
        _end(book, change, _ENDS[type(change)])
    else:
        _play_rare(book, change)


def _play_rare(book: StoreState, change: Change) -> None:
    if isinstance(change, Activated):
        _activated(book, change)
    elif isinstance(change, Renewed):
        _renewed(book, change)
    elif isinstance(change, Deferred):
        _deferred(book, change)
    elif isinstance(change, Declared):
        _declared(book, change)
    elif isinstance(change, Dropped):
        _dropped(book, change)
    elif isinstance(change, Processed):
        _entity(book, change.entity).mark_processed(change.key, change.at_ns)
        if book.saves:
            book.unsaved_marks.append((change.entity, MARK_PROCESSED, change.key, change.at_ns))
    elif isinstance(change, (SessionTaken, SessionLeft, SessionStated)):
        _session_changed(book, change)
    elif isinstance(change, Advanced):
        book.positions[change.name] = change.position
        if change.name == CLOCK:
            cut_windows(book, change.at_ns)
    else:
        assert isinstance(change, (Duplicated, Pruned, Forgotten))  # Only history cares.


def _sent(book: StoreState, change: Sent) -> None:
    entry = StoredMessage(_entity(book, change.entity), change.sequence, change.who, change.priority, change.data)
    entry.expires_ns = change.expires_ns
    entry.overlay = change.overlay
    entry.hops = change.hops
    _store(book, entry, change.dedup_key, change.at_ns, change.visible_ns)


def _store(book: StoreState, entry: StoredMessage, key: str | None, at_ns: i64, visible_ns: i64) -> None:
    entity = entry.entity
    book.weight += entry.size + weight_of_ids(entry.who, key)
    if entry.overlay is not None:
        book.weight += weight_of(entry.overlay)
    if key is not None:
        _mark(book, entity, key, at_ns)
    if _is_new(book, entity, entry.sequence):
        entry.home_sequence = book.seq
        put(book, entity, entry, at_ns, visible_ns)


def _mark(book: StoreState, entity: Entity, key: str, at_ns: int) -> None:
    entity.mark(key, at_ns)
    if book.saves:
        book.unsaved_marks.append((entity.number, MARK_SENT, key, at_ns))


def _passed(book: StoreState, change: Passed) -> None:
    entity = _entity(book, change.entity)
    if change.dedup_key is not None:
        _mark(book, entity, change.dedup_key, change.at_ns)
    if change.sequence > entity.sequence:
        entity.sequence = change.sequence
    _carry(book, change)


def _carry(book: StoreState, change: Passed) -> None:
    if change.data:
        book.weight += len(change.data)
        book.carrier = book.seq
        book.carried = change.data


def _copied(book: StoreState, change: Copied) -> None:
    entity = _entity(book, change.entity)
    if change.dedup_key is not None:
        _mark(book, entity, change.dedup_key, change.at_ns)
    if change.overlay is not None:
        book.weight += weight_of(change.overlay)
    if not _is_new(book, entity, change.sequence):
        return
    entry = StoredMessage(entity, change.sequence, change.who, change.priority, None)
    if change.back:
        if book.seq - change.back != book.carrier:
            raise _damaged(f"the copy {entity.name!r} #{change.sequence} does not follow its data")
        entry.data = book.carried
        entry.home_sequence = book.carrier
    else:
        source = book.entry(change.source_entity, change.source_sequence)
        if source is None:
            _missing(book, entity, change.source_sequence, "copied")
            return
        entry.data = source.data
        entry.home_entity = source.home_entity
        entry.home_sequence = source.home_sequence
    entry.expires_ns = change.expires_ns
    entry.hops = change.hops
    entry.overlay = change.overlay
    put(book, entity, entry, change.at_ns, change.visible_ns)


def _is_new(book: StoreState, entity: Entity, sequence: i64) -> bool:
    """Every sequence is used once. One that is known already was played before, or is a snapshot's."""
    if sequence <= entity.sequence and book.strict:
        raise _damaged(f"{entity.name!r} #{sequence} appears twice in the journal")
    if sequence > entity.sequence:
        entity.sequence = sequence
    if sequence in entity.entries:
        if book.strict:
            # Only a damaged file makes this possible. Without the error the message would be lost without a word.
            raise _damaged(f"{entity.name!r} #{sequence} is stored already")
        return False
    return True


def _delivered(book: StoreState, change: Delivered) -> None:
    entry = _moving(book, change.entity, change.sequence, "delivered")
    if entry is not None:
        _lock(book, entry, change.delivery_count, change.token, change.consumer, change.at_ns, change.until_ns)


def _lock(
    book: StoreState, entry: StoredMessage, count: i64, token: bytes, consumer: str, at_ns: i64, until_ns: i64
) -> None:
    if entry.state == DEFERRED:
        entry.was_deferred = True  # For good; and a replay over a newer row must not take it back.
    leave(book, entry)
    entry.delivery_count = count
    entry.token = token
    entry.due_ns = until_ns
    entry.consumer = consumer
    if entry.first_delivered_ns == 0:
        entry.first_delivered_ns = at_ns
    enter(book, entry, LOCKED)


def _renewed(book: StoreState, change: Renewed) -> None:
    entry = _moving(book, change.entity, change.sequence, "renewed")
    if entry is not None:
        entry.due_ns = change.until_ns
        # Mostly it is among the deadlines already, with an earlier one; not where the lock duration was lowered.
        if entry.session is None:
            book.due.add(entry, change.until_ns)


def _returned(book: StoreState, change: Returned) -> None:
    entry = _moving(book, change.entity, change.sequence, "returned")
    if entry is None:
        return
    leave(book, entry)
    entry.delivery_count = change.delivery_count
    if change.overlay is not None:
        book.weight += weight_of(change.overlay)
        entry.overlay = change.overlay
    if entry.was_deferred:
        enter(book, entry, DEFERRED)
    elif change.visible_ns:
        entry.delayed = True
        entry.due_ns = change.visible_ns
        enter(book, entry, SCHEDULED)
    else:
        enter(book, entry, ACTIVE)
        entry.entity.waits_in(entry).put_back(entry)


def _deferred(book: StoreState, change: Deferred) -> None:
    entry = _moving(book, change.entity, change.sequence, "deferred")
    if entry is not None:
        leave(book, entry)
        if change.overlay is not None:
            book.weight += weight_of(change.overlay)
            entry.overlay = change.overlay
        entry.was_deferred = True  # It is from here on; a replay over a newer row says so as well.
        enter(book, entry, DEFERRED)


def _activated(book: StoreState, change: Activated) -> None:
    entity = _entity(book, change.entity)
    if change.new_sequence > entity.sequence:
        entity.sequence = change.new_sequence
    entry = _moving(book, change.entity, change.sequence, "activated")
    if entry is None:
        return
    leave(book, entry)
    if change.new_sequence == change.sequence:
        entry.delayed = False
        enter(book, entry, ACTIVE)
        entity.waits_in(entry).put_back(entry)
        return
    if change.new_sequence in entity.entries:
        remove(book, entry)  # A snapshot has brought its new identity already.
        return
    # Its old identity ends here, and a snapshot may have a row of it.
    del entity.entries[entry.sequence]
    if entry.saved:
        book.gone.append((entity.number, entry.sequence))
        entry.saved = False
    session = entry.session
    if session is not None:
        del session.entries[entry.sequence]
        session.entries[change.new_sequence] = entry
    entry.sequence = change.new_sequence
    entry.enqueued_ns = change.at_ns
    entity.entries[entry.sequence] = entry
    if entity.ordered:
        entity.place(entry)
    enter(book, entry, ACTIVE)
    line_up(book, entry)


def _end(book: StoreState, change: _End, name: str) -> None:
    entry = _moving(book, change.entity, change.sequence, name)
    if entry is None:
        return
    leave(book, entry)
    remove(book, entry)


def _moving(book: StoreState, entity: int, sequence: int, change: str) -> StoredMessage | None:
    """The message that a change is about. None when it is gone already, which only a replay may find."""
    owner = _entity(book, entity)
    entry = owner.entries.get(sequence)
    if entry is None:
        _missing(book, owner, sequence, change)
        return None
    _check(book, entry, change)
    return entry


def _check(book: StoreState, entry: StoredMessage, change: str) -> None:
    """Whether the table allows it. It will be another message after that, for the next snapshot too."""
    if not may(change, entry.state) and book.strict:
        raise _damaged(f"{entry.entity.name!r} #{entry.sequence} is {STATE_NAMES[entry.state]} and cannot be {change}")
    touch(book, entry)


def _missing(book: StoreState, entity: Entity, sequence: int, change: str) -> None:
    if book.strict:
        raise _damaged(f"{entity.name!r} #{sequence} is {change} in the journal, but it does not exist")


def _session_changed(book: StoreState, change: SessionTaken | SessionLeft | SessionStated) -> None:
    entity = _entity(book, change.entity)
    session = entity.session(change.session_id)
    entity.unsaved = True
    if isinstance(change, SessionTaken):
        session.token = change.token
        session.until_ns = change.until_ns
        session.consumer = change.consumer
        book.due.add(session, change.until_ns)
    elif isinstance(change, SessionLeft):
        session.token = None
        session.until_ns = 0
        session.consumer = ""  # A snapshot does not keep it for a free session either.
    else:
        if change.state is not None:
            book.weight += len(change.state)
        state_session(entity, session, change.state, 0 if change.state is None else change.at_ns)
    refresh_ready(book, entity, session)
    forget_session(book, entity, session)


def _declared(book: StoreState, change: Declared) -> None:
    book.weight += weight_of(change.settings)
    entity = book.entities.get(change.entity)
    if entity is not None:
        before = entity.settings
        entity.change_settings(change.settings)
        entity.unsaved = True
        entity.updated_ns = max(entity.updated_ns, change.at_ns)
        book.note_idler(entity)
        if entity.settings.status != before.status:
            _stir(book, entity)
        if entity.topic is not None and not entity.settings.has_rules_of(before):
            book.routers.pop(entity.topic.number, None)
        return
    entity = Entity(change.entity, change.name, change.kind, change.settings)
    entity.created_ns = entity.updated_ns = change.at_ns
    book.add_entity(entity, change.sequence)


def _stir(book: StoreState, entity: Entity) -> None:
    """Its status has changed, and with it that of its dead letters: those who wait there have to know."""
    for each in (entity, entity.dead):
        if each is not None and each.wakers:
            each.stirred = True
            book.woken.append(each)


def _dropped(book: StoreState, change: Dropped) -> None:
    entity = book.entities.get(change.entity)
    if entity is None:
        if book.strict:
            raise _damaged(f"entity {change.name!r} is deleted in the journal, but it does not exist")
        return
    remove_all(book, entity)
    book.dropped.append(entity.number)
    entity.deleted = True
    del book.entities[change.entity]
    book.kinds[entity.kind] -= 1
    book.forget_listings()
    book.idlers.pop(entity.number, None)
    for name in (entity.name, entity.name.casefold()):
        if book.names.get(name) is entity:
            del book.names[name]
            book.retired[entity.name.casefold()] = entity.sequence
    owner = entity.topic
    book.routers.pop(entity.number, None)
    if owner is not None:
        book.routers.pop(owner.number, None)
        owner.subscriptions = [each for each in owner.subscriptions if each is not entity]
    parent = book.find(owner_name(entity.name, entity.kind)) if entity.kind == DEAD_LETTERS else None
    if parent is not None and parent.dead is entity:
        parent.dead = None
    if entity.wakers:
        book.woken.append(entity)


def _entity(book: StoreState, number: int) -> Entity:
    found = book.entities.get(number)
    if found is None:
        raise _damaged(f"the journal names entity {number}, which it never declared")
    return found


def _damaged(what: str) -> StoreDamaged:
    return StoreDamaged(what, DAMAGED_HINT)
