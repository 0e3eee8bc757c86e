# mypyc: compiled
"""Applies changes to the state of a store: the only way in which the state changes.

    command ──record──▶ change ──▶ apply ──▶ state
                          │
                          └──▶ state.fresh, until the store writes it to the journal
    journal ──replay──▶ change ──▶ apply ──▶ the same state

A command never modifies the state itself. It records changes here, one after the other: each is applied at once, and
stays in `state.fresh` until the store takes it for the journal. Recovery applies the changes of the journal by the same
code, so the state after a crash is the state before it.

`state.strict` is True if the journal continues the state exactly: then a change that does not fit is damage. It is
False while a journal is replayed over a snapshot that is partly newer: then a change may be about a message that the
snapshot no longer has, or may be in the snapshot already. Changes are absolute, so applying one again does not matter.
"""

from typing import Final, TypeAlias

from mypy_extensions import i64

from unibus.core.lifecycle.state.changes import (
    Activated,
    Advanced,
    Applied,
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
    append_ready,
    delete_empty_session,
    enter,
    leave,
    mark_unsaved,
    put,
    refresh_ready,
    remove,
    remove_all,
    set_session_state,
    wake_waiters,
)
from unibus.core.lifecycle.state.state import MARK_PROCESSED, MARK_SENT, StoreState, owner_name
from unibus.core.lifecycle.state.states import ACTIVE, DEFERRED, LOCKED, SCHEDULED, STATE_NAMES, may
from unibus.core.lifecycle.state.weight import CHANGE_WEIGHT, weight_of, weight_of_ids, weight_of_texts
from unibus.core.lifecycle.state.windows import set_position
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


def record(state: StoreState, change: Change) -> None:
    """Apply a new change of a command, and queue it for the journal."""
    state.seq += 1
    state.weight += CHANGE_WEIGHT + weight_of_texts(change)
    # Recorded before it is applied: if applying raises, the store has stopped (`deciding`), and neither is written.
    state.fresh.append(change)
    _apply(state, change)


# The three changes of nearly every message, for commands that have the message already: without a second lookup.


def record_sent(state: StoreState, entry: StoredMessage, key: str | None, at_ns: i64, visible_ns: i64) -> None:
    state.seq += 1
    state.weight += CHANGE_WEIGHT
    entry.entity.sent += 1
    data = entry.data
    assert data is not None
    state.fresh.append(
        Sent(
            at_ns=at_ns,
            entity=entry.entity.number,
            sequence=entry.sequence,
            who=entry.who,
            priority=entry.priority,
            expires_ns=entry.expires_ns,
            visible_ns=visible_ns,
            dedup_key=key,
            data=data,
            overlay=entry.overlay,
            hops=entry.hops,
        )
    )
    _store_message(state, entry, key, at_ns, visible_ns)


def record_delivered(
    state: StoreState, entry: StoredMessage, count: i64, token: bytes, consumer: str, at_ns: i64, until_ns: i64
) -> Delivered:
    state.seq += 1
    state.weight += CHANGE_WEIGHT + len(consumer)
    entry.entity.delivered += 1
    change = Delivered(at_ns, entry.entity.number, entry.sequence, entry.who, count, token, until_ns, consumer)
    state.fresh.append(change)
    _check_transition(state, entry, "delivered")
    # Values and not `change`: to read the fields of a struct is slow in compiled code, and this runs for each delivery.
    _lock(state, entry, count, token, consumer, at_ns, until_ns)
    return change


def record_completed(state: StoreState, entry: StoredMessage, count: i64, consumer: str, at_ns: i64) -> None:
    state.seq += 1
    state.weight += CHANGE_WEIGHT + len(consumer)
    entry.entity.completed += 1
    first_ns = entry.first_delivered_ns or at_ns
    state.fresh.append(
        Completed(at_ns, entry.entity.number, entry.sequence, entry.who, count, entry.enqueued_ns, first_ns, consumer)
    )
    _check_transition(state, entry, "completed")
    # Out of the old indexes before any field changes: they are found by the old state, token and session.
    leave(state, entry)
    remove(state, entry)


def replay(state: StoreState, change: Change) -> None:
    """Apply a change from the journal. If the state is not strict, its entity may not exist any more."""
    state.seq += 1
    state.weight += CHANGE_WEIGHT
    if state.replayed_ns == 0:
        state.replayed_ns = change.at_ns
    # Not strict: the snapshot may be from after the deletion of this entity, while its messages are still in the log.
    if state.strict or change.entity in state.entities or isinstance(change, (Declared, Advanced, Applied)):
        _apply(state, change)
    elif isinstance(change, Passed):
        # The entity was deleted, but the copies that follow may be in other entities: they need the data.
        _keep_shared_data(state, change)


def _apply(state: StoreState, change: Change) -> None:
    # The most common first.
    if isinstance(change, Sent):
        _apply_sent(state, change)
    elif isinstance(change, Delivered):
        _apply_delivered(state, change)
    elif isinstance(change, Completed):
        _apply_end(state, change, "completed")
    elif isinstance(change, Copied):
        _apply_copied(state, change)
    elif isinstance(change, Passed):
        _apply_passed(state, change)
    elif isinstance(change, Returned):
        _apply_returned(state, change)
    elif isinstance(change, (Expired, DeadLettered, Cancelled, Routed, Purged, Moved)):
        _apply_end(state, change, _ENDS[type(change)])
    else:
        _apply_rare(state, change)


def _apply_rare(state: StoreState, change: Change) -> None:
    if isinstance(change, Activated):
        _apply_activated(state, change)
    elif isinstance(change, Renewed):
        _apply_renewed(state, change)
    elif isinstance(change, Deferred):
        _apply_deferred(state, change)
    elif isinstance(change, Declared):
        _apply_declared(state, change)
    elif isinstance(change, Dropped):
        _apply_dropped(state, change)
    elif isinstance(change, Processed):
        _get_entity(state, change.entity).mark_processed(change.key, change.at_ns)
        if state.saves:
            state.unsaved_marks.append((change.entity, MARK_PROCESSED, change.key, change.at_ns))
    elif isinstance(change, (SessionTaken, SessionLeft, SessionStated)):
        _apply_session_change(state, change)
    elif isinstance(change, Advanced):
        set_position(state, change.name, change.position, change.at_ns)
    elif isinstance(change, Applied):
        state.batches.add(change, state.saves)
    else:
        assert isinstance(change, (Duplicated, Pruned, Forgotten))  # For history only: they do not change the state.


def _apply_sent(state: StoreState, change: Sent) -> None:
    entity = _get_entity(state, change.entity)
    entry = StoredMessage(entity, change.sequence, change.who, change.priority, change.data)
    entry.expires_ns = change.expires_ns
    entry.overlay = change.overlay
    entry.hops = change.hops
    _store_message(state, entry, change.dedup_key, change.at_ns, change.visible_ns)


def _store_message(state: StoreState, entry: StoredMessage, key: str | None, at_ns: i64, visible_ns: i64) -> None:
    entity = entry.entity
    state.weight += entry.size + (weight_of_ids(entry.who, key) if entry.has_ids or key is not None else 0)
    if entry.overlay is not None:
        state.weight += weight_of(entry.overlay)
    if key is not None:
        _record_dedup_key(state, entity, key, at_ns)
    # The dedup key above is entered also if the message exists already: the snapshot may have the one and not the
    # other.
    if _is_new(state, entity, entry.sequence):
        # Where the data is on disk: the record that is being applied.
        entry.home_sequence = state.seq
        put(state, entity, entry, at_ns, visible_ns)


def _record_dedup_key(state: StoreState, entity: Entity, key: str, at_ns: int) -> None:
    entity.mark(key, at_ns)
    if state.saves:
        state.unsaved_marks.append((entity.number, MARK_SENT, key, at_ns))


def _apply_passed(state: StoreState, change: Passed) -> None:
    entity = _get_entity(state, change.entity)
    if change.dedup_key is not None:
        _record_dedup_key(state, entity, change.dedup_key, change.at_ns)
    # A pass stores nothing, but its sequence is used up.
    if change.sequence > entity.sequence:
        entity.sequence = change.sequence
    _keep_shared_data(state, change)


def _keep_shared_data(state: StoreState, change: Passed) -> None:
    if change.data:
        state.weight += len(change.data)
        state.carrier = state.seq
        state.carried = change.data


def _apply_copied(state: StoreState, change: Copied) -> None:
    entity = _get_entity(state, change.entity)
    if change.dedup_key is not None:
        _record_dedup_key(state, entity, change.dedup_key, change.at_ns)
    if change.overlay is not None:
        state.weight += weight_of(change.overlay)
    if not _is_new(state, entity, change.sequence):
        return
    entry = StoredMessage(entity, change.sequence, change.who, change.priority, None)
    if change.back:
        if state.seq - change.back != state.carrier:
            raise _damaged(f"the copy {entity.name!r} #{change.sequence} does not follow the record with its data")
        # The same bytes object for every copy: memory has the body once.
        entry.data = state.carried
        entry.home_sequence = state.carrier
    else:
        source = state.entry(change.source_entity, change.source_sequence)
        if source is None:
            _report_missing(state, entity, change.source_sequence, "copied")
            return
        entry.data = source.data
        # The copy shares the place of the data with its source. A snapshot gives it a row of its own before that place
        # is deleted (engine/snapshot.py).
        entry.home_entity = source.home_entity
        entry.home_sequence = source.home_sequence
    entry.expires_ns = change.expires_ns
    entry.hops = change.hops
    entry.overlay = change.overlay
    put(state, entity, entry, change.at_ns, change.visible_ns)


def _is_new(state: StoreState, entity: Entity, sequence: i64) -> bool:
    """Every sequence is assigned once. A known one was applied before, or comes from a snapshot."""
    if sequence <= entity.sequence and state.strict:
        raise _damaged(f"{entity.name!r} #{sequence} appears twice in the journal")
    if sequence > entity.sequence:
        entity.sequence = sequence
    if sequence in entity.entries:
        if state.strict:
            # Only a damaged file makes this possible. Without the error the message would be lost silently.
            raise _damaged(f"{entity.name!r} #{sequence} is stored already")
        return False
    return True


def _apply_delivered(state: StoreState, change: Delivered) -> None:
    entry = _find_message(state, change.entity, change.sequence, "delivered")
    if entry is not None:
        _lock(state, entry, change.delivery_count, change.token, change.consumer, change.at_ns, change.until_ns)
        entry.ends_with_process = change.ends_with_process


def _lock(
    state: StoreState, entry: StoredMessage, count: i64, token: bytes, consumer: str, at_ns: i64, until_ns: i64
) -> None:
    if entry.state == DEFERRED:
        entry.was_deferred = True  # Never reset: a replay over a newer row must not reset it either.
    leave(state, entry)
    entry.delivery_count = count
    entry.token = token
    entry.due_ns = until_ns
    entry.consumer = consumer
    entry.ends_with_process = False
    if entry.first_delivered_ns == 0:
        entry.first_delivered_ns = at_ns
    enter(state, entry, LOCKED)


def _apply_renewed(state: StoreState, change: Renewed) -> None:
    entry = _find_message(state, change.entity, change.sequence, "renewed")
    if entry is not None:
        # The deadline is not moved in the heap: its entry is checked when it is popped.
        entry.due_ns = change.until_ns
        # Mostly the deadlines have an earlier entry already; not if the lock duration was shortened.
        if entry.session is None:
            state.due.add(entry, change.until_ns)


def _apply_returned(state: StoreState, change: Returned) -> None:
    entry = _find_message(state, change.entity, change.sequence, "returned")
    if entry is None:
        return
    leave(state, entry)
    entry.delivery_count = change.delivery_count
    if change.overlay is not None:
        state.weight += weight_of(change.overlay)
        entry.overlay = change.overlay
    if entry.was_deferred:
        enter(state, entry, DEFERRED)
    elif change.visible_ns:
        entry.delayed = True
        entry.due_ns = change.visible_ns
        enter(state, entry, SCHEDULED)
    else:
        enter(state, entry, ACTIVE)
        entry.entity.ready_queue_of(entry).reinsert(entry)


def _apply_deferred(state: StoreState, change: Deferred) -> None:
    entry = _find_message(state, change.entity, change.sequence, "deferred")
    if entry is not None:
        leave(state, entry)
        if change.overlay is not None:
            state.weight += weight_of(change.overlay)
            entry.overlay = change.overlay
        entry.was_deferred = True  # From here on; a replay over a newer row sets it as well.
        enter(state, entry, DEFERRED)


def _apply_activated(state: StoreState, change: Activated) -> None:
    entity = _get_entity(state, change.entity)
    if change.new_sequence > entity.sequence:
        entity.sequence = change.new_sequence
    entry = _find_message(state, change.entity, change.sequence, "activated")
    if entry is None:
        return
    leave(state, entry)
    if change.new_sequence == change.sequence:
        entry.delayed = False
        enter(state, entry, ACTIVE)
        entity.ready_queue_of(entry).reinsert(entry)
        return
    # Only in a replay over a newer snapshot.
    if change.new_sequence in entity.entries:
        remove(state, entry)  # The snapshot has the message under its new sequence already.
        return
    # The old sequence ends here, and a snapshot may have a row for it.
    del entity.entries[entry.sequence]
    if entry.saved:
        state.gone.append((entity.number, entry.sequence))
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
    enter(state, entry, ACTIVE)
    append_ready(state, entry)


def _apply_end(state: StoreState, change: _End, name: str) -> None:
    entry = _find_message(state, change.entity, change.sequence, name)
    if entry is not None:
        leave(state, entry)
        remove(state, entry)


def _find_message(state: StoreState, entity: int, sequence: int, change: str) -> StoredMessage | None:
    """The message of a change. None if it does not exist any more, which only a replay that is not strict may find."""
    owner = _get_entity(state, entity)
    entry = owner.entries.get(sequence)
    if entry is None:
        _report_missing(state, owner, sequence, change)
        return None
    _check_transition(state, entry, change)
    return entry


def _check_transition(state: StoreState, entry: StoredMessage, change: str) -> None:
    """Raise if the table of states does not allow the change. Also marks the message for the next snapshot."""
    if not may(change, entry.state) and state.strict:
        raise _damaged(f"{entry.entity.name!r} #{entry.sequence} is {STATE_NAMES[entry.state]} and cannot be {change}")
    mark_unsaved(state, entry)


def _report_missing(state: StoreState, entity: Entity, sequence: int, change: str) -> None:
    if state.strict:
        raise _damaged(f"{entity.name!r} #{sequence} is {change} in the journal, but it does not exist")


def _apply_session_change(state: StoreState, change: SessionTaken | SessionLeft | SessionStated) -> None:
    entity = _get_entity(state, change.entity)
    session = entity.session(change.session_id)
    entity.unsaved = True
    if isinstance(change, SessionTaken):
        session.token = change.token
        session.until_ns = change.until_ns
        session.consumer = change.consumer
        state.due.add(session, change.until_ns)
    elif isinstance(change, SessionLeft):
        session.token = None
        session.until_ns = 0
        session.consumer = ""  # A snapshot does not store it for an unlocked session either.
    else:
        state.weight += len(change.state or b"")
        set_session_state(entity, session, change.state, 0 if change.state is None else change.at_ns)
    refresh_ready(state, entity, session)
    delete_empty_session(state, entity, session)


def _apply_declared(state: StoreState, change: Declared) -> None:
    state.weight += weight_of(change.settings)
    entity = state.entities.get(change.entity)
    if entity is not None:
        before = entity.settings
        entity.change_settings(change.settings)
        entity.unsaved = True
        entity.updated_ns = max(entity.updated_ns, change.at_ns)
        state.update_auto_deleted(entity)
        # Receivers that wait see an error now, or may receive again: wake them, so that each looks itself.
        if entity.settings.status != before.status:
            wake_waiters(state, entity)
        if entity.topic is not None and not entity.settings.has_rules_of(before):
            state.routers.pop(entity.topic.number, None)
        return
    entity = Entity(change.entity, change.name, change.kind, change.settings)
    entity.created_ns = entity.updated_ns = change.at_ns
    state.add_entity(entity, change.sequence)


def _apply_dropped(state: StoreState, change: Dropped) -> None:
    entity = state.entities.get(change.entity)
    if entity is None:
        if state.strict:
            raise _damaged(f"entity {change.name!r} is deleted in the journal, but it does not exist")
        return
    remove_all(state, entity)
    state.dropped.append(entity.number)
    entity.deleted = True
    del state.entities[change.entity]
    state.kinds[entity.kind] -= 1
    state.clear_listings()
    state.auto_deleted.pop(entity.number, None)
    for name in (entity.name, entity.name.casefold()):
        # In a replay over a snapshot the name may lead to its successor already.
        if state.names.get(name) is entity:
            del state.names[name]
            state.retired[entity.name.casefold()] = entity.sequence
    owner = entity.topic
    state.routers.pop(entity.number, None)
    if owner is not None:
        state.routers.pop(owner.number, None)
        owner.subscriptions = [each for each in owner.subscriptions if each is not entity]
    parent = state.find(owner_name(entity.name, entity.kind)) if entity.kind == DEAD_LETTERS else None
    if parent is not None and parent.dead is entity:
        parent.dead = None
    if entity.wakers:
        state.woken.append(entity)


def _get_entity(state: StoreState, number: int) -> Entity:
    found = state.entities.get(number)
    if found is None:
        raise _damaged(f"the journal has a change of entity {number}, which was never declared")
    return found


def _damaged(what: str) -> StoreDamaged:
    return StoreDamaged(what, DAMAGED_HINT)
