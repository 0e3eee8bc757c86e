# mypyc: compiled
"""Claim: deliver messages, under a lock or with immediate removal. And run what is due, which a claim must see first.

The delivery count is incremented here, when a message is delivered, and is part of the change. So a consumer that
crashes with the message has used up one delivery, and a message that crashes every consumer is dead-lettered.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from unibus.core.flow.expiry import is_expired
from unibus.core.lifecycle.routed_message import RoutedMessage
from unibus.core.lifecycle.sending import route
from unibus.core.lifecycle.sessions import session_over
from unibus.core.lifecycle.settling import expire, is_last_delivery, requeue
from unibus.core.lifecycle.state.apply import record, record_completed, record_delivered
from unibus.core.lifecycle.state.changes import Activated, Advanced, Renewed, Routed, SessionTaken
from unibus.core.lifecycle.state.deadlines import DeadlineItem
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, TOPIC, Entity, Session, StoredMessage, lock_ns_of
from unibus.core.lifecycle.state.ready_queue import ReadyQueue
from unibus.core.lifecycle.state.state import StoreState
from unibus.core.lifecycle.state.states import ACTIVE, DEFERRED, GONE, LOCKED
from unibus.core.lifecycle.state.windows import CLOCK, has_window_from_later
from unibus.errors import MessageNotFound, MessageTooLarge, SessionRequired

DUE_PER_CALL: Final = 1_000
"""The most in one call, so that other calls get their turn."""


def run_due(state: StoreState, now_ns: i64, at_most: int = DUE_PER_CALL) -> bool:
    """Run what is due: end locks, expire messages, activate scheduled ones. True if more may be due."""
    done: i64 = 0
    state.deciding = True
    while done < at_most:
        # In order of deadlines. An item that was settled meanwhile is stale and not returned.
        item = state.due.pop(now_ns)
        if item is None:
            break
        _run_deadline(state, item, now_ns)
        done += 1
    state.deciding = False
    # True also if nothing more is due: the caller then asks once more.
    return done == at_most


def end_locks_of_processes(state: StoreState, now_ns: i64) -> "tuple[int, int]":
    """At open: end the locks of handlers that ran in the process that had the store open before, and has ended.

    The messages are redelivered, or dead-lettered after their last delivery, as if the locks had expired. Returns how
    many of each.
    """
    redelivered = dead_lettered = 0
    state.deciding = True
    for entity in list(state.entities.values()):
        if not entity.locked:
            continue
        for entry in list(entity.entries.values()):
            # In a session the lock of the session protects the message.
            if entry.state == LOCKED and entry.ends_with_process and entry.session is None:
                entity.locks_expired += 1
                requeue(state, entry, "lock_expired", 0, entry.overlay, now_ns)
                if entry.state == GONE:
                    dead_lettered += 1
                else:
                    redelivered += 1
    state.deciding = False
    return redelivered, dead_lettered


def limit_durations(state: StoreState, now_ns: i64) -> None:
    """At open: limit every lock and every dedup window to its duration from now. A longer one was created under a later
    clock, which has been set back since. Schedules and expiries are instants of the wall clock, and do not change."""
    state.deciding = True
    _limit_locks(state, now_ns)
    if has_window_from_later(state, now_ns):
        record(state, Advanced(now_ns, 0, 0, CLOCK, now_ns))
    state.deciding = False


def _limit_locks(state: StoreState, now_ns: i64) -> None:
    for entity in list(state.entities.values()):
        if entity.locked:
            until_ns = now_ns + lock_ns_of(entity)
            for entry in entity.entries.values():
                # A lock only gets shorter here. One that is over by the new clock ends as usual, at its deadline.
                if entry.state == LOCKED and entry.session is None and entry.due_ns > until_ns:
                    record(state, Renewed(now_ns, entity.number, entry.sequence, until_ns))
        until_ns = now_ns + entity.settings.lock_ns
        for session in entity.sessions.values():
            if session.token is not None and session.until_ns > until_ns:
                taken = SessionTaken(
                    now_ns, entity.number, entity.sequence, session.id, session.token, until_ns, session.consumer
                )
                record(state, taken)


def _run_deadline(state: StoreState, item: DeadlineItem, now_ns: i64) -> None:
    if isinstance(item, Session):
        session_over(state, item, "lock_expired", now_ns)
        return
    assert isinstance(item, StoredMessage)
    if item.state == LOCKED:
        item.entity.locks_expired += 1
        requeue(state, item, "lock_expired", 0, item.overlay, now_ns)
    elif item.state == ACTIVE:
        expire(state, item, now_ns)
    else:
        activate(state, item, now_ns)


def activate(state: StoreState, entry: StoredMessage, now_ns: i64) -> None:
    """Activate a message. A scheduled one goes to the end of the queue, as if it were sent now; one that was abandoned
    with a delay keeps its position."""
    entity = entry.entity
    entity.used(now_ns)
    if entry.delayed:
        record(state, Activated(now_ns, entity.number, entry.sequence, entry.who, entry.sequence))
    elif entity.kind == TOPIC or entity.settings.forward_to:
        # The time to live from `due_ns` on; it was added when the message was sent.
        routed = RoutedMessage(entry.who, entry.priority, max(0, entry.expires_ns - entry.due_ns))
        routed.source = entry
        routed.hops = entry.hops
        route(state, entity, routed, None, now_ns)
        record(state, Routed(now_ns, entity.number, entry.sequence, entry.who))
    else:
        # A new sequence: a receiver that reads in order must not find a message before the ones that it has seen.
        record(state, Activated(now_ns, entity.number, entry.sequence, entry.who, entity.sequence + 1))


@final
@mypyc_attr(acyclic=True)
class Claimed:
    """A delivered or peeked message: a copy, which shares nothing with the state that changes later.

    Until the answer is given, `data` may still be on disk; `absent` is then the message whose data the store reads.
    """

    def __init__(self, entry: StoredMessage, token: bytes, until_ns: int, delivery_count: int) -> None:
        self.entity = entry.entity.name
        self.sequence: i64 = entry.sequence
        self.enqueued_ns: i64 = entry.enqueued_ns
        self.expires_ns: i64 = entry.expires_ns
        self.priority: i64 = entry.priority
        self.who = entry.who
        self.overlay = entry.overlay
        self.state: i64 = entry.state
        self.data = entry.data
        self.absent: StoredMessage | None = entry if entry.data is None else None
        self.token = token
        self.until_ns: i64 = until_ns  # 0: no lock; the message is removed by this delivery, or peeked and unlocked.
        self.delivery_count: i64 = delivery_count
        self.in_session = entry.session is not None  # The lock of the session protects it.
        self.by_priority = entry.entity.settings.by_priority  # Whether its entity delivers by priority.
        # Whether a consumer of the entity has committed the effect of this message id; only if the claim asked for it.
        self.was_processed = False


def show_processed(entity: Entity, claimed: list[Claimed], now_ns: i64) -> None:
    """Set `was_processed` of each message."""
    for each in claimed:
        each.was_processed = entity.was_processed(each.who.message_id, now_ns)


@final
class ClaimTerms:
    """What a claim asks for beside the messages. Without `lock` each message is removed by its delivery.

    The message that reaches `bytes_max` is the last one; 0 is no limit. `ends_with_process`: the locks end at the next
    opening of the store. Then up to `starts_max` messages are handled at once, and the others wait in the process: a
    message whose last allowed delivery this is does not wait there, so that it is never dead-lettered untried.
    """

    def __init__(self, lock: bool, consumer: str, bytes_max: i64, ends_with_process: bool, starts_max: i64) -> None:
        self.lock = lock
        self.consumer = consumer
        self.bytes_max: i64 = bytes_max
        self.ends_with_process = ends_with_process
        self.starts_max: i64 = starts_max


def claim(
    state: StoreState, entity: Entity, session: Session | None, tokens: list[bytes], terms: ClaimTerms, now_ns: i64
) -> list[Claimed]:
    """Deliver up to as many messages as there are tokens."""
    if entity.settings.requires_session and session is None and entity.kind != DEAD_LETTERS:
        raise SessionRequired(f"{entity.name!r} requires a session", "accept a session and receive from it")
    # The check above comes before the first change: a rejected claim changes nothing.
    waiting = entity.waiting if session is None else session.waiting
    claimed: list[Claimed] = []
    size: i64 = 0
    state.deciding = True
    for token in tokens:
        entry = _next(state, waiting, now_ns)
        if entry is None:
            break
        if terms.ends_with_process and len(claimed) >= terms.starts_max and is_last_delivery(entry, 1):
            waiting.reinsert(entry)
            break
        size += entry.size
        claimed.append(deliver(state, entry, token, terms, now_ns))
        if terms.bytes_max and size >= terms.bytes_max:
            break
    return claimed


def _next(state: StoreState, waiting: ReadyQueue, now_ns: i64) -> StoredMessage | None:
    while True:
        entry = waiting.pop()
        if entry is None:
            return None
        assert isinstance(entry, StoredMessage)
        # `run_due` applies a limited number of deadlines per call, so an expired message may still be in the queue. It
        # must never be delivered.
        if not is_expired(entry.expires_ns, now_ns):
            return entry
        expire(state, entry, now_ns)


def claim_deferred(
    state: StoreState, entries: list[StoredMessage], tokens: list[bytes], terms: ClaimTerms, now_ns: i64
) -> list[Claimed]:
    """Deliver the messages that `deferred_entries` found."""
    state.deciding = True
    return [deliver(state, entry, token, terms, now_ns) for entry, token in zip(entries, tokens, strict=True)]


def deliver(state: StoreState, entry: StoredMessage, token: bytes, terms: ClaimTerms, now_ns: i64) -> Claimed:
    entity = entry.entity
    count = entry.delivery_count + 1
    if terms.lock:
        session = entry.session
        until_ns = now_ns + lock_ns_of(entity) if session is None else session.until_ns
        claimed = Claimed(entry, token, until_ns, count)
        change = record_delivered(state, entry, count, token, terms.consumer, now_ns, until_ns)
        if terms.ends_with_process:
            change.ends_with_process = entry.ends_with_process = True
        return claimed
    # Before the change is recorded: removing the message releases its data, and `Claimed` keeps it.
    claimed = Claimed(entry, b"", 0, count)
    entity.delivered += 1
    record_completed(state, entry, count, terms.consumer, now_ns)
    return claimed


def deferred_entries(
    entity: Entity, session: Session | None, sequences: list[int], bytes_max: i64 = 0
) -> list[StoredMessage]:
    """Deferred messages by their sequences. Raises MessageNotFound unless all exist.

    Raises MessageTooLarge for several that are larger than `bytes_max` together; 0 is no limit. A single message may
    have any size.
    """
    found: dict[int, StoredMessage] = {}
    size: i64 = 0
    for sequence in sequences:
        entry = entity.entries.get(sequence)
        if entry is None or entry.state != DEFERRED or entry.session is not session or sequence in found:
            raise MessageNotFound(
                f"{entity.name!r} has no deferred message #{sequence}", "only a received message can be deferred"
            )
        found[sequence] = entry
        size += entry.size
    if bytes_max and size > bytes_max and len(found) > 1:
        raise MessageTooLarge(
            f"{len(found)} deferred messages of {entity.name!r} have {size} bytes, one call gives at most {bytes_max}",
            "ask for fewer at once; a single message may have any size",
        )
    return list(found.values())
