# mypyc: compiled
"""Sessions: one receiver at a time holds the lock of a session and gets its messages in order of sequence. A session
also has a small state that outlives its receiver.
"""

from mypy_extensions import i64

from unibus.core.envelope.fields import plain_text
from unibus.core.lifecycle.admission import target_of
from unibus.core.lifecycle.commands import LEAVE_SESSION, RENEW_SESSION, SET_SESSION_STATE, SessionCommand
from unibus.core.lifecycle.settling import requeue
from unibus.core.lifecycle.state.apply import record
from unibus.core.lifecycle.state.changes import SessionLeft, SessionStated, SessionTaken
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, Entity, Session
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import MessageTooLarge, SessionLocked, SessionLockLost, SessionNotAllowed, UsageError
from unibus.limits import MESSAGE_ID_CHARS_MAX, SESSION_STATE_BYTES_MAX


def accept(
    state: StoreState, entity: Entity, session_id: str | None, token: bytes, consumer: str, now_ns: i64
) -> Session | None:
    """Lock a session by its id, or the next unlocked one with messages. None if there is no such session."""
    if not entity.settings.requires_session or entity.kind == DEAD_LETTERS:
        raise SessionNotAllowed(f"{entity.name!r} does not use sessions", "create it with requires_session=True")
    if session_id is None:
        if not entity.ready:
            return None
        # The one that became ready first: a dict keeps the order of insertion, so no session starves.
        session_id = next(iter(entity.ready))
    else:
        session_id = plain_text("a session id", session_id)
        if not 1 <= len(session_id) <= MESSAGE_ID_CHARS_MAX:
            raise UsageError(
                f"the session_id must have 1 to {MESSAGE_ID_CHARS_MAX} characters, it has {len(session_id)}"
            )
    consumer = plain_text("the consumer", consumer)
    found = entity.sessions.get(session_id)
    if found is not None and found.token is not None and found.until_ns > now_ns:
        raise SessionLocked(
            f"session {session_id!r} of {entity.name!r} is locked by another receiver", "wait, or accept another"
        )
    state.deciding = True
    if found is not None and found.token is not None:
        # The old lock has expired, but was not processed yet. Its messages must be requeued first: the locks of the old
        # receiver must not pass to the new one.
        session_over(state, found, "lock_expired", now_ns)
    until_ns = now_ns + entity.settings.lock_ns
    # The session may have no messages yet: a receiver may wait for its first one.
    record(state, SessionTaken(now_ns, entity.number, entity.sequence, session_id, token, until_ns, consumer))
    return entity.sessions[session_id]


def held_session(state: StoreState, name: str, session_id: str, token: bytes, now_ns: i64) -> Session:
    entity = target_of(state, name)
    found = entity.sessions.get(session_id)
    if found is None or found.token != token or found.until_ns <= now_ns:
        raise SessionLockLost(f"the lock on session {session_id!r} of {entity.name!r} has expired", "accept it again")
    return found


def check_session(state: StoreState, command: SessionCommand, now_ns: i64) -> Session:
    session = held_session(state, command.entity, command.session_id, command.token, now_ns)
    if command.verb == SET_SESSION_STATE and command.state is not None:
        if len(command.state) > SESSION_STATE_BYTES_MAX:
            raise MessageTooLarge(
                f"the session state has {len(command.state)} bytes, at most {SESSION_STATE_BYTES_MAX} are allowed",
                "store a reference",
            )
    return session


def change_session(state: StoreState, command: SessionCommand, now_ns: i64) -> int:
    """Renew the lock, release it, or set the state. Returns the end of the lock."""
    session = held_session(state, command.entity, command.session_id, command.token, now_ns)
    entity = session.entity
    if command.verb == RENEW_SESSION:
        until_ns = now_ns + entity.settings.lock_ns
        record(
            state,
            SessionTaken(now_ns, entity.number, entity.sequence, session.id, command.token, until_ns, session.consumer),
        )
    elif command.verb == LEAVE_SESSION:
        session_over(state, session, "closed", now_ns)
    else:
        record(state, SessionStated(now_ns, entity.number, entity.sequence, session.id, command.state))
    return session.until_ns


def session_ids(entity: Entity, updated_after_ns: i64, skip: int, top: int) -> list[str]:
    """The sessions with messages or a state, by id; with an instant only those whose state was set after it."""
    lists = entity.listed_sessions()
    return lists.page_after(updated_after_ns, skip, top) if updated_after_ns else lists.page(skip, top)


def session_over(state: StoreState, session: Session, reason: str, now_ns: i64) -> None:
    """End the lock of a session: its in-flight messages are requeued at their positions, and the session is free."""
    entity = session.entity
    if reason == "lock_expired":
        entity.locks_expired += len(session.locked)  # Its messages have no separate locks.
    # Messages first, then the session: when it is offered again, all of its messages are in the ready queue at their
    # positions. A receiver that is woken in between cannot exist, because wake-ups come after the decision.
    for entry in list(session.locked.values()):
        requeue(state, entry, f"session_{reason}", 0, entry.overlay, now_ns)
    record(state, SessionLeft(now_ns, entity.number, entity.sequence, session.id, reason))
    if entity.wakers:
        state.woken.append(entity)  # A receiver may wait for this session by its id, with or without messages.
