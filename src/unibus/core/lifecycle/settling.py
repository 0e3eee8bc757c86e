# mypyc: compiled
"""Settle a locked message: complete, abandon, defer, dead-letter, release; also renew a lock and cancel a scheduled
one.

Fencing: only the token of the current lock is accepted, and only until the lock expires. So a receiver that was too
slow cannot settle a message that is redelivered to another one. A requeued message keeps its position; after
`max_delivery_count` deliveries it is dead-lettered.
"""

from typing import Final

from mypy_extensions import i64

from unibus.core.codec.codec import decode
from unibus.core.envelope.fields import plain_text
from unibus.core.flow.deadletter import (
    DESCRIPTION_CHARS_MAX,
    DESCRIPTION_HEADER,
    MAX_DELIVERY_COUNT_EXCEEDED,
    NOT_FORWARDED,
    SOURCE_HEADER,
    TTL_EXPIRED,
    capped,
)
from unibus.core.lifecycle.admission import target_of
from unibus.core.lifecycle.commands import ABANDON, BY_TOKEN, COMPLETE, DEAD_LETTER, DEFER, Cancel, Renew, Settle
from unibus.core.lifecycle.forwarding import ask
from unibus.core.lifecycle.routed_message import RoutedMessage
from unibus.core.lifecycle.sending import admit, dead_letter_overrides, dead_letters_of, store_copy
from unibus.core.lifecycle.state.apply import record, record_completed
from unibus.core.lifecycle.state.changes import (
    Cancelled,
    DeadLettered,
    Deferred,
    Expired,
    HeaderOverrides,
    Processed,
    Renewed,
    Returned,
)
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, Entity, StoredMessage, lock_ns_of
from unibus.core.lifecycle.state.state import StoreState
from unibus.core.lifecycle.state.states import LOCKED, SCHEDULED
from unibus.errors import LockLost, MessageNotFound, SessionLockLost
from unibus.limits import FORWARD_HOPS_MAX

_LOST: Final = "it was settled, or the lock expired and the message is redelivered: receive it again"
_OTHER: Final = "give the entity and the message id that were received with the lock token"


def locked_entry(state: StoreState, name: str, sequence: int, token: bytes, now_ns: i64) -> StoredMessage:
    """The message that is locked with this token. Raises LockLost."""
    entity = target_of(state, name)
    entry = entity.entries.get(sequence)
    # The token is the fencing token: a receiver whose lock has expired has an old one, also if the message is locked
    # again by another receiver.
    if entry is None or entry.state != LOCKED or entry.token != token:
        raise LockLost(f"{entity.name!r} #{sequence} is not locked with this token", _LOST)
    if entry.session is not None and (entry.session.token is None or entry.session.until_ns <= now_ns):
        raise SessionLockLost(
            f"the lock on session {entry.session.id!r} of {entity.name!r} has expired", "accept it again"
        )
    # Also if the timer has not run yet: the lock ends by the clock, not by the timer.
    if entry.lock_ends_ns() <= now_ns:
        raise LockLost(f"the lock on {entity.name!r} #{sequence} has expired", "receive the message again")
    return entry


def entry_by_token(state: StoreState, name: str, message_id: str, token: bytes, now_ns: i64) -> StoredMessage:
    """The message that is locked with this token. Raises LockLost if there is none.

    Raises MessageNotFound if it is not the message that the caller names; then its lock is not changed.
    """
    entity = target_of(state, name) if name else None
    entry = state.by_token(token)
    if entry is None:
        raise LockLost("no message is locked with this token", _LOST)
    if entity is not None and entry.entity is not entity:
        raise MessageNotFound(f"the message with this lock is not in {entity.name!r}", _OTHER)
    # Azure's clients name a locked message by its id or by its sequence number.
    if message_id and entry.who.message_id != message_id and str(int(entry.sequence)) != message_id:
        raise MessageNotFound(f"the message with this lock is not {message_id!r:.80}", _OTHER)
    return locked_entry(state, entry.entity.name, entry.sequence, token, now_ns)


def lock_of(state: StoreState, command: Settle | Renew, now_ns: i64) -> StoredMessage:
    """The locked message of a command, found by sequence or by token."""
    if command.sequence != BY_TOKEN:
        return locked_entry(state, command.entity, command.sequence, command.token, now_ns)
    return entry_by_token(state, command.entity, command.message_id, command.token, now_ns)


def check_texts(command: Settle) -> None:
    """Truncate and check the texts of a dead-lettering: they are written to the journal, which needs encodable text."""
    command.reason = capped(plain_text("the reason", command.reason), DESCRIPTION_CHARS_MAX)
    command.description = plain_text("the description", command.description)
    command.signature = plain_text("the signature", command.signature)


def settle(state: StoreState, command: Settle, now_ns: i64) -> None:
    """Settle a message whose lock was checked."""
    entry = command.entry
    assert entry is not None
    entry.entity.used(now_ns)
    # In one group with the settlement: after a crash either both are on disk or none, so the effect of a message is
    # recorded exactly if it is settled.
    if command.processed_key is not None:
        record(state, Processed(now_ns, entry.entity.number, entry.sequence, command.processed_key))
    if command.verb == COMPLETE:
        record_completed(state, entry, entry.delivery_count, entry.consumer, now_ns)
    elif command.verb == ABANDON:
        entry.entity.abandoned += 1
        requeue(state, entry, "abandoned", command.delay_ns, merged(entry.overlay, command.overlay), now_ns)
    elif command.verb == DEFER:
        overlay = merged(entry.overlay, command.overlay)
        record(state, Deferred(now_ns, entry.entity.number, entry.sequence, entry.who, entry.delivery_count, overlay))
    elif command.verb == DEAD_LETTER:
        overlay = merged(entry.overlay, command.overlay)
        dead_letter(state, entry, command.reason, command.description, command.signature, overlay, now_ns)
    else:
        release(state, entry, now_ns)


def merged(overlay: HeaderOverrides | None, more: HeaderOverrides | None) -> HeaderOverrides | None:
    if overlay is None or more is None:
        return more if overlay is None else overlay
    return {**overlay, **more}


def requeue(
    state: StoreState, entry: StoredMessage, reason: str, delay_ns: i64, overlay: HeaderOverrides | None, now_ns: i64
) -> None:
    """Requeue a message whose delivery failed, or dead-letter it if that was the last allowed delivery."""
    entity = entry.entity
    # The count was incremented by the delivery, so it includes the one that failed now.
    if is_last_delivery(entry, 0):
        text = f"{reason} at delivery {entry.delivery_count} of {entity.settings.delivery_count_max}"
        dead_letter(state, entry, MAX_DELIVERY_COUNT_EXCEEDED, text, "", overlay, now_ns)
        return
    visible_ns = now_ns + delay_ns if delay_ns > 0 else 0
    record(
        state,
        Returned(now_ns, entity.number, entry.sequence, entry.who, entry.delivery_count, reason, visible_ns, overlay),
    )


def is_last_delivery(entry: StoredMessage, more: i64) -> bool:
    """Whether no delivery is left after `more` deliveries from now. A dead-letter queue has no limit."""
    entity = entry.entity
    return entry.delivery_count + more >= entity.settings.delivery_count_max and entity.kind != DEAD_LETTERS


def release(state: StoreState, entry: StoredMessage, now_ns: i64) -> None:
    """Requeue a message without counting the delivery: no handler has seen it."""
    # An absolute number, not "one less": applying the change twice must not lower it twice.
    count = entry.delivery_count - 1
    record(state, Returned(now_ns, entry.entity.number, entry.sequence, entry.who, count, "released", 0, entry.overlay))


def dead_letter(
    state: StoreState,
    entry: StoredMessage,
    reason: str,
    description: str,
    signature: str,
    overlay: HeaderOverrides | None,
    now_ns: i64,
) -> None:
    """Move a message to the dead-letter queue. In a dead-letter queue it stays there, as a new message with the new
    reason.

    The copy is recorded before the original ends, in one group: a crash leaves both or none.
    """
    entity = entry.entity
    entity.dead_lettered += 1
    consumer = entry.consumer
    source = _source_of(state, entry, overlay)
    dead = RoutedMessage(entry.who, entry.priority, 0)
    dead.source = entry
    dead.hops = entry.hops + 1
    dead.overlay = dead_letter_overrides(
        overlay, reason, description, signature, entry.delivery_count, source, consumer, now_ns
    )
    # The message stays in its entity until its copy is recorded, so there is no moment without it.
    if not _forward_dead(state, entry, dead, now_ns):
        store_copy(state, dead_letters_of(state, entity, now_ns), dead, None, now_ns)
    record(
        state,
        DeadLettered(
            at_ns=now_ns,
            entity=entity.number,
            sequence=entry.sequence,
            who=entry.who,
            delivery_count=entry.delivery_count,
            enqueued_ns=entry.enqueued_ns,
            first_delivered_ns=entry.first_delivered_ns,
            reason=reason,
            signature=signature,
            consumer=consumer,
        ),
    )


def _source_of(state: StoreState, entry: StoredMessage, overlay: HeaderOverrides | None) -> str:
    """The entity where the message failed. In a dead-letter queue that is the original one: a retry sends it there."""
    entity = entry.entity
    if entity.kind != DEAD_LETTERS:
        return entity.name
    source = None if overlay is None else overlay.get(SOURCE_HEADER)
    if source is None:
        source = decode(state.data_of(entry)).headers.get(SOURCE_HEADER)  # A rule action encoded it into the data.
    if isinstance(source, str) and source:
        return source
    return entity.name if entity.owner is None else entity.owner.name


def _forward_dead(state: StoreState, entry: StoredMessage, dead: RoutedMessage, now_ns: i64) -> bool:
    """Forward a dead-lettered message if its entity forwards those. False: it stays here, and is never lost.

    It stays if the target rejects it or knows it already, and if no rule of a topic matches it.
    """
    target = _forward_target(state, entry)
    if target is None:
        return False
    admission = ask(state, target, dead, now_ns)
    if not admission.reason and not admission.is_duplicate:
        return admit(state, target, dead, admission, now_ns) > 0
    overlay = dead.overlay
    assert overlay is not None
    before = overlay.get(DESCRIPTION_HEADER)
    why = f"{NOT_FORWARDED}{admission.description or f'{target.name!r} has had it already'}"
    overlay[DESCRIPTION_HEADER] = capped(f"{before}; {why}" if before else why, DESCRIPTION_CHARS_MAX)
    return False


def _forward_target(state: StoreState, entry: StoredMessage) -> Entity | None:
    """The target to which this entity forwards dead-lettered messages. None: they stay here.

    The hop limit applies to them too: two queues that forward their dead-lettered messages to each other would
    otherwise pass a message with a ttl back and forth without end.
    """
    entity = entry.entity
    name = entity.settings.forward_dead_letters_to
    if not name or entity.kind == DEAD_LETTERS or entry.hops >= FORWARD_HOPS_MAX:
        return None
    found = state.find(name)
    return None if found is entity else found


def expire(state: StoreState, entry: StoredMessage, now_ns: i64) -> None:
    """Expire a message: dead-letter it if the entity is set to do so, else remove and count it."""
    if entry.entity.settings.dead_letter_on_expiration and entry.entity.kind != DEAD_LETTERS:
        dead_letter(state, entry, TTL_EXPIRED, "the message was not received in time", "", entry.overlay, now_ns)
        return
    record(
        state,
        Expired(
            now_ns,
            entry.entity.number,
            entry.sequence,
            entry.who,
            entry.delivery_count,
            entry.enqueued_ns,
            entry.first_delivered_ns,
        ),
    )


def renew(state: StoreState, command: Renew, now_ns: i64) -> int:
    """Renew a lock. Returns its new end."""
    entry = lock_of(state, command, now_ns)
    if entry.session is not None:
        return entry.session.until_ns  # In a session the lock of the session protects its messages; that is renewed.
    until_ns = now_ns + lock_ns_of(entry.entity)
    record(state, Renewed(now_ns, entry.entity.number, entry.sequence, until_ns))
    return until_ns


def scheduled_entry(state: StoreState, command: Cancel) -> StoredMessage:
    entity = target_of(state, command.entity)
    entry = entity.entries.get(command.sequence)
    if entry is None or entry.state != SCHEDULED or entry.delayed:
        raise MessageNotFound(
            f"{entity.name!r} has no scheduled message #{command.sequence}",
            "it may be active already: then it has another sequence",
        )
    return entry


def cancel(state: StoreState, command: Cancel, now_ns: i64) -> None:
    entry = scheduled_entry(state, command)
    record(state, Cancelled(now_ns, entry.entity.number, entry.sequence, entry.who))
