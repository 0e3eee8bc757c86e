# mypyc: compiled
"""The indexes that follow the state of a message: counts, ready queues, sessions, lock tokens and deadlines.

`leave` removes a message from the indexes of its current state, `enter` adds it to those of a new one. Every change of
state calls both, so that the invariants of invariants.py hold between two commands.
"""

from mypy_extensions import i64

from unibus.core.lifecycle.state.changes import SavedEntry, SavedSession
from unibus.core.lifecycle.state.entity import Entity, Session, StoredMessage, processed_window, sent_window
from unibus.core.lifecycle.state.state import StoreState
from unibus.core.lifecycle.state.states import ACTIVE, DEFERRED, GONE, LOCKED, SCHEDULED


def put(state: StoreState, entity: Entity, entry: StoredMessage, at_ns: int, visible_ns: int) -> None:
    size = entry.size
    entity.entries[entry.sequence] = entry
    entity.size_bytes += size
    if entry.data is not None:
        # Decided once, when the message arrives. Data that was released is read from disk with the delivery, and is not
        # kept then.
        if state.held_bytes + size <= state.memory_budget:
            state.held_bytes += size
        elif state.replaying:
            entry.data = None
        else:
            # Beyond the memory budget, but the journal does not have it yet: release the data after the write.
            state.held_bytes += size
            state.to_shed.append(entry)
    _join_session(state, entity, entry)
    if entity.ordered:
        entity.place(entry)
    mark_unsaved(state, entry)
    if visible_ns:
        entry.due_ns = visible_ns
        enter(state, entry, SCHEDULED)
    else:
        entry.enqueued_ns = at_ns
        enter(state, entry, ACTIVE)
        append_ready(state, entry)


def append_ready(state: StoreState, entry: StoredMessage) -> None:
    """Append a message to its ready queue. If not strict, a snapshot may have messages with higher sequences there
    already, so it is inserted by its position."""
    ready = entry.entity.ready_queue_of(entry)
    if state.strict:
        ready.push(entry)
    else:
        ready.reinsert(entry)


def _join_session(state: StoreState, entity: Entity, entry: StoredMessage) -> None:
    session = entity.session_of(entry)
    if session is not None:
        session.entries[entry.sequence] = entry
        entry.session = session
        # Only a first or last message changes whether the session is listed.
        if len(session.entries) == 1:
            _update_session_lists(entity, session)


def _update_session_lists(entity: Entity, session: Session) -> None:
    """The session has its first message, or lost its last one: a list of sessions may change."""
    if entity.session_lists is not None:
        entity.session_lists.update(session.id, session.is_listed())


def remove(state: StoreState, entry: StoredMessage) -> None:
    entity = entry.entity
    entry.state = GONE
    del entity.entries[entry.sequence]
    entity.size_bytes -= entry.size
    if entry.data is not None:
        state.held_bytes -= entry.size
        entry.data = None
    # The snapshot has a row for it, which the next one deletes. Without a row nothing is left to delete.
    if entry.saved:
        state.gone.append((entity.number, entry.sequence))
    session = entry.session
    if session is not None:
        del session.entries[entry.sequence]
        if not session.entries:
            _update_session_lists(entity, session)
            delete_empty_session(state, entity, session)
    # Its entries in the heap are stale from now on; removing them one by one would cost a search each.
    state.due.forget(entry)


def remove_all(state: StoreState, entity: Entity) -> None:
    """Remove all messages of an entity that is deleted. Its counts, queues and sessions are deleted with it, so they
    are not updated one by one."""
    timers: i64 = 0
    tokens = state.tokens
    for entry in entity.entries.values():
        entry.state = GONE
        if entry.token is not None:
            if tokens is not None:
                tokens.pop(entry.token, None)
            entry.token = None
        if entry.data is not None:
            state.held_bytes -= entry.size
            entry.data = None
        if entry.saved:
            state.gone.append((entity.number, entry.sequence))
        timers += entry.timers
    for session in entity.sessions.values():
        session.token = None  # Else its deadline would be run for an entity that does not exist any more.
        timers += session.timers
    state.due.forget_all(timers)
    entity.release()


def set_session_state(entity: Entity, session: Session, state: bytes | None, stated_ns: i64) -> None:
    session.state = state
    session.stated_ns = stated_ns
    if entity.session_lists is not None:
        entity.session_lists.update_state(session.id, stated_ns)
        entity.session_lists.update(session.id, session.is_listed())


def mark_unsaved(state: StoreState, entry: StoredMessage) -> None:
    # Once in the list, however often it changes until the next snapshot.
    if state.saves and not entry.unsaved:
        entry.unsaved = True
        state.unsaved.append(entry)


def leave(state: StoreState, entry: StoredMessage) -> None:
    entity = entry.entity
    message_state = entry.state
    if message_state == ACTIVE:
        entity.active -= 1
        if entry.session is not None:
            entry.session.active -= 1
            # Its session may have no active message left, and must not be offered any more.
            refresh_ready(state, entity, entry.session)
    elif message_state == LOCKED:
        entity.locked -= 1
        token = entry.token
        if token is not None:
            tokens = state.tokens
            if tokens is not None:
                tokens.pop(token, None)
            if entry.session is not None:
                entry.session.locked.pop(token, None)
            entry.token = None
    elif message_state == SCHEDULED:
        entity.scheduled -= 1
    elif message_state == DEFERRED:
        entity.deferred -= 1


def enter(state: StoreState, entry: StoredMessage, message_state: i64) -> None:
    entity = entry.entity
    entry.state = message_state
    if message_state == ACTIVE:
        entity.active += 1
        if entry.session is not None:
            entry.session.active += 1
            refresh_ready(state, entity, entry.session)
        if entity.wakers:
            state.woken.append(entity)
    elif message_state == LOCKED:
        entity.locked += 1
        token = entry.token
        tokens = state.tokens
        if tokens is not None and token:  # An import records a delivery without a token, and ends it in the same batch.
            tokens[token] = entry
        if entry.session is not None and token is not None:
            entry.session.locked[token] = entry
    elif message_state == SCHEDULED:
        entity.scheduled += 1
    elif message_state == DEFERRED:
        entity.deferred += 1
    deadline_ns = entry.deadline_ns()
    if deadline_ns:
        state.due.add(entry, deadline_ns)


def refresh_ready(state: StoreState, entity: Entity, session: Session) -> None:
    # Unlocked with active messages: exactly then a receiver may accept it. Called after every change of either.
    if session.token is None and session.active > 0:
        if session.id not in entity.ready:
            entity.ready[session.id] = session
            if entity.wakers:
                state.woken.append(entity)
    else:
        entity.ready.pop(session.id, None)


def delete_empty_session(state: StoreState, entity: Entity, session: Session) -> None:
    """Delete a session without messages, state and lock: nothing of it has to be stored."""
    if not session.entries and session.state is None and session.token is None:
        entity.sessions.pop(session.id, None)


def restore(state: StoreState, entity: Entity, sequence: int, saved: SavedEntry) -> StoredMessage:
    """Add a message from a snapshot. Called in order of sequences. Its data stays on disk until it is delivered."""
    entry = StoredMessage(entity, sequence, saved.who, saved.priority, None)
    entry.delivery_count = saved.delivery_count
    entry.expires_ns = saved.expires_ns
    entry.due_ns = saved.due_ns
    entry.enqueued_ns = saved.enqueued_ns
    entry.first_delivered_ns = saved.first_delivered_ns
    entry.token = saved.token
    entry.was_deferred = saved.was_deferred
    entry.delayed = saved.delayed
    entry.hops = saved.hops
    entry.overlay = saved.overlay
    entry.consumer = saved.consumer
    entry.ends_with_process = saved.ends_with_process
    entry.home_entity = entity.number
    entry.home_sequence = sequence
    entry.saved = True
    entity.entries[sequence] = entry
    entity.size_bytes += entry.size
    # Before `enter`, which counts the message in its session.
    _join_session(state, entity, entry)
    enter(state, entry, saved.state)
    if saved.state == ACTIVE:
        entity.ready_queue_of(entry).push(entry)
    return entry


def restore_session(state: StoreState, entity: Entity, saved: SavedSession) -> None:
    session = entity.session(saved.session_id)
    set_session_state(entity, session, saved.state, saved.stated_ns)
    session.token = saved.token
    session.until_ns = saved.until_ns
    session.consumer = saved.consumer
    if saved.token is not None:
        state.due.add(session, saved.until_ns)
    refresh_ready(state, entity, session)


def restore_mark(entity: Entity, is_processed: bool, key: str, at_ns: i64) -> None:
    """Add a dedup key from a snapshot. Called in the order of instants."""
    window = processed_window(entity) if is_processed else sent_window(entity)
    window.restore(key, at_ns)


def wake_waiters(state: StoreState, entity: Entity) -> None:
    """The status has changed, also that of the dead-letter queue: wake the receivers that wait there."""
    for each in (entity, entity.dead):
        if each is not None and each.wakers:
            each.status_changed = True
            state.woken.append(each)
