# mypyc: compiled
"""Send: routes a message to where it is stored.

    queue                                   stored there
    topic                                   fan-out: one copy for each matching subscription;
                                            without subscriptions stored in the topic, if it keeps messages
    an entity that forwards                 stored at its target, after at most FORWARD_HOPS_MAX hops
    nowhere (too many hops, no session,     the dead-letter queue of the entity that could not store or forward it
    rejected by the target of a forward)

Everything was checked before the first change (admission.py), so nothing here may raise. A message that cannot be
stored on the way is dead-lettered, not rejected: the send was accepted as a whole.
"""

from collections.abc import Iterable
from typing import Final

from mypy_extensions import i64

from unibus.core.codec.codec import encode
from unibus.core.envelope.exact_text import exact_text
from unibus.core.envelope.message import Message
from unibus.core.flow.deadletter import (
    FILTER_EVALUATION_FAILED,
    FORWARD_TARGET_MISSING,
    MAX_TRANSFER_HOP_COUNT_EXCEEDED,
    SESSION_ID_IS_NULL,
    dead_letter_headers,
    is_sub_queue,
    sub_queue,
)
from unibus.core.flow.expiry import effective_ttl_ns, expires_at_ns
from unibus.core.lifecycle.admission import ENABLE, dedup_key, imported_entity, is_stored_in, target_of
from unibus.core.lifecycle.commands import ImportedState, Send, SendResult
from unibus.core.lifecycle.forwarding import Admission, ask
from unibus.core.lifecycle.missing import hint_for_missing, hint_for_topic
from unibus.core.lifecycle.routed_message import RoutedMessage
from unibus.core.lifecycle.state.apply import record, record_sent
from unibus.core.lifecycle.state.changes import (
    Copied,
    Declared,
    Delivered,
    Duplicated,
    HeaderOverrides,
    MessageRef,
    Passed,
    Returned,
    Routed,
    Settings,
)
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, SUBSCRIPTION, TOPIC, Entity, StoredMessage
from unibus.core.lifecycle.state.routing import Arrival, Router
from unibus.core.lifecycle.state.state import StoreState
from unibus.core.lifecycle.state.states import ACTIVE
from unibus.errors import EntityDisabled, EntityNotFound, UsageError
from unibus.limits import FORWARD_HOPS_MAX

_IMPORT: Final = "import"
_IMPORTED: Final = "imported"
_NO_SETTINGS: Final[Settings] = {}
_DEAD_LETTER_SETTINGS: Final[Settings] = {"default_ttl": None}


def entries_of(state: StoreState, name: str) -> Iterable[StoredMessage]:
    """The messages of an entity, read-only. A dead-letter queue is created with its first message; before that it has
    none."""
    if state.find(name) is None and is_sub_queue(name):
        target_of(state, name.rpartition("/")[0])
        return []
    return target_of(state, name).entries.values()


def page_of(
    state: StoreState, name: str, session_id: str | None, from_sequence: int, count: int, bytes_max: i64 = 0
) -> list[StoredMessage]:
    """A page of messages in order of sequence, for a peek; those of one session if `session_id` is given.

    The message that reaches `bytes_max` is the last one; 0: no such limit.
    """
    found = state.find(name)
    if found is None:
        entries_of(state, name)  # EntityNotFound, unless it is a dead-letter queue without messages.
        return []
    page = (
        found.page(from_sequence, count) if session_id is None else found.session_page(session_id, from_sequence, count)
    )
    size: i64 = 0
    for at, entry in enumerate(page):
        size += entry.size
        if bytes_max and size >= bytes_max:
            return page[: at + 1]
    return page


def queue_of(state: StoreState, name: str, now_ns: i64) -> Entity:
    """The entity to receive from; a dead-letter queue that does not exist yet is created."""
    found = state.find(name)
    if found is None:
        owner = _owner_of_sub_queue(state, name)
        state.deciding = True
        found = dead_letters_of(state, owner, now_ns)
        state.deciding = False
    elif not found.is_queue():
        raise UsageError(f"messages cannot be received from {found.name!r}: it is a topic", hint_for_topic(found))
    return found


def receiving_from(state: StoreState, name: str, now_ns: i64) -> Entity:
    """The same, to receive messages or accept a session: its status must allow receiving."""
    found = state.find(name)
    if found is None:
        found = _owner_of_sub_queue(state, name)  # Checked before the sub-queue is created: an error changes nothing.
    if not found.receives():
        raise EntityDisabled(f"messages cannot be received from {name!r}: it is {_status(found)}", ENABLE)
    found = queue_of(state, name, now_ns)
    found.used(now_ns)
    return found


def _owner_of_sub_queue(state: StoreState, name: str) -> Entity:
    """The queue or subscription whose dead-letter queue has this name."""
    owner = state.find(name.rpartition("/")[0]) if is_sub_queue(name) else None
    if owner is None or owner.kind == TOPIC or owner.kind == DEAD_LETTERS:
        raise EntityNotFound(f"there is no queue, topic or subscription {name!r}", hint_for_missing(state, name))
    return owner


def _status(entity: Entity) -> str:
    owner = entity if entity.owner is None else entity.owner
    return owner.settings.status


def send(state: StoreState, command: Send, now_ns: i64) -> SendResult:
    """Store a message that `check_send` has accepted."""
    if command.imported is not None:
        return _store_imported(state, command, command.imported, now_ns)
    entity = state.find(command.entity)
    if entity is None:
        entity = declare(state, command.entity, command.creates, _NO_SETTINGS, now_ns)
    entity.accessed_ns = now_ns
    who = command.who
    # The key is checked again here, although `check_send` has done so: an earlier send of the batch may have entered
    # it.
    key = dedup_key(entity, command)
    if key is not None and entity.is_known(key, now_ns):
        record(state, Duplicated(now_ns, entity.number, entity.sequence, who, key))
        return SendResult(entity.name, 0, who.message_id, True)
    # Assigned here and written in the change: recovery uses the number of the change, and never counts itself.
    sequence = entity.sequence + 1
    visible_ns = command.visible_ns if command.visible_ns > now_ns else 0
    settings = entity.settings
    copies: i64 = 1
    duplicates = state.forwarded_duplicates
    if visible_ns or is_stored_in(entity):
        entry = StoredMessage(entity, sequence, who, command.priority, command.data)
        entry.has_ids = command.message is None or command.message.properties is not None
        if command.ttl_ns or settings.ttl_ns:
            ttl_ns = effective_ttl_ns(command.ttl_ns, settings.ttl_ns)
            # The time to live of a scheduled message begins when it becomes visible.
            entry.expires_ns = expires_at_ns(visible_ns or now_ns, ttl_ns)
        record_sent(state, entry, key, now_ns, visible_ns)
    else:
        routed = RoutedMessage(who, command.priority, command.ttl_ns)
        routed.data = command.data
        routed.message = command.message
        routed.arrivals = command.arrivals
        routed.dedup_key = command.dedup_key
        # Not stored in this entity: the record of the pass takes the sequence.
        copies = route(state, entity, routed, key, now_ns)
    result = SendResult(entity.name, sequence, who.message_id, False)
    # No copy: no subscription matched, or a target had the message already. Only the second is a duplicate.
    if copies == 0:
        result.is_forwarded_duplicate = state.forwarded_duplicates > duplicates
        result.is_routed = result.is_forwarded_duplicate
    return result


def _store_imported(state: StoreState, command: Send, imported: ImportedState, now_ns: i64) -> SendResult:
    """Store an imported message in its former state. A delivery that is returned in the same batch sets its delivery
    count and header overrides, so an import needs no kind of change of its own."""
    entity = imported_entity(state, command.entity)
    who = command.who
    key: str | None = None
    if is_sub_queue(command.entity):
        entity = dead_letters_of(state, entity, now_ns)
    else:
        key = dedup_key(entity, command)
    sequence = entity.sequence + 1
    visible_ns = command.visible_ns if command.visible_ns > now_ns else 0
    if entity.kind == TOPIC and entity.subscriptions and not visible_ns:
        # There the topic kept it for its first subscription; here the topic has subscriptions, so it is routed.
        routed = RoutedMessage(
            who, command.priority, max(1, imported.expires_ns - now_ns) if imported.expires_ns else 0
        )
        routed.data = command.data
        routed.overlay = imported.overlay
        routed.dedup_key = command.dedup_key
        route(state, entity, routed, key, now_ns)
        return SendResult(entity.name, sequence, who.message_id, False)
    count = imported.delivery_count
    was_out = count > 0 or imported.overlay is not None
    entry = StoredMessage(entity, sequence, who, command.priority, command.data)
    entry.expires_ns = imported.expires_ns
    record_sent(state, entry, key, now_ns, 0 if was_out else visible_ns)
    if was_out:
        # In the same batch, so in one group: no receiver sees the state in between, and no crash leaves it.
        record(state, Delivered(now_ns, entity.number, sequence, who, max(1, count), b"", now_ns, _IMPORT))
        record(state, Returned(now_ns, entity.number, sequence, who, count, _IMPORTED, visible_ns, imported.overlay))
    return SendResult(entity.name, sequence, who.message_id, False)


def route(state: StoreState, entity: Entity, routed: RoutedMessage, key: str | None, now_ns: i64) -> i64:
    """Route a message from an entity to where it is stored. Returns how many copies were stored.

    0: it reached a topic without a matching subscription. For a publisher that is normal; a caller that removes the
    message elsewhere must not treat it as stored, or the message is lost.
    """
    if entity.kind == TOPIC and not is_stored_in(entity):
        return _fan_out(state, entity, routed, key, now_ns)
    if entity.kind != TOPIC and entity.settings.forward_to:
        return _forward(state, entity, routed, key, now_ns)
    if entity.settings.requires_session and routed.who.session_id is None and entity.kind != DEAD_LETTERS:
        _dead_letter(state, entity, routed, key, SESSION_ID_IS_NULL, "the entity requires a session_id", now_ns)
    else:
        store_copy(state, entity, routed, key, now_ns)
    return 1


def _forward(state: StoreState, entity: Entity, routed: RoutedMessage, key: str | None, now_ns: i64) -> i64:
    """Forward a message to the target of the entity, or dead-letter it with the reason why that is impossible."""
    name = entity.settings.forward_to
    ttl_ns = entity.settings.ttl_ns
    target = state.find(name)
    if target is None:
        _dead_letter(state, entity, routed, key, FORWARD_TARGET_MISSING, f"no entity {name!r}", now_ns)
        return 1
    if routed.hops >= FORWARD_HOPS_MAX:
        _dead_letter(state, entity, routed, key, MAX_TRANSFER_HOP_COUNT_EXCEEDED, "forwarded too often", now_ns)
        return 1
    # Asked before anything is recorded: a rejection is dead-lettered here, in the entity that forwards, where an
    # operator looks for it.
    admission = ask(state, target, routed.onward(entity, ttl_ns), now_ns)
    if admission.reason:
        _dead_letter(state, entity, routed, key, admission.reason, admission.description, now_ns)
        return 1
    # A duplicate is not stored: 0 copies. `onward` is called again, because the data may be in the record of the pass
    # now.
    _pass(state, entity, routed, key, 0 if admission.is_duplicate else 1, now_ns)
    return admit(state, target, routed.onward(entity, ttl_ns), admission, now_ns)


def admit(state: StoreState, target: Entity, routed: RoutedMessage, admission: Admission, now_ns: i64) -> i64:
    """Store a message at a target that accepted it, or record it as a duplicate. Returns how many copies were
    stored."""
    key = admission.key
    if admission.is_duplicate and key is not None:
        record(state, Duplicated(now_ns, target.number, target.sequence, routed.who, key))
        state.forwarded_duplicates += 1
        return 0
    routed.arrivals = admission.arrivals
    return route(state, target, routed, key, now_ns)


def _fan_out(state: StoreState, topic: Entity, routed: RoutedMessage, key: str | None, now_ns: i64) -> i64:
    """Route a message of a topic to the subscriptions whose rules match. Returns how many copies were stored."""
    # The space for copies that are stored in a subscription was reserved by the check. Forwards come last and use what
    # is left, so that they cannot take space that was granted to the sender.
    ttl_ns = topic.settings.ttl_ns
    stored: i64 = 0
    forwards: list[Arrival] = []
    router = state.router(topic)
    if router.takes_all:
        subscriptions = topic.subscriptions
        # The data is written once, in the record of the topic. Each copy refers to it by its distance, so a fan-out to
        # a thousand subscriptions writes the body once.
        _pass(state, topic, routed, key, len(subscriptions), now_ns)
        for subscription in subscriptions:
            if subscription.settings.forward_to:
                forwards.append(Arrival(subscription))
            else:
                stored += route(state, subscription, routed.fork(ttl_ns), None, now_ns)
    else:
        arrivals = routed.arrivals
        if arrivals is None:
            # Only for a message that no check has seen, such as a scheduled one that is due now. Else the arrivals of
            # the check are used: a rule with random values must not decide twice.
            arrivals = router.arrivals(routed.content(state))
        _pass(state, topic, routed, key, len(arrivals), now_ns)
        for arrival in arrivals:
            if arrival.entity.settings.forward_to:
                forwards.append(arrival)
            else:
                stored += _arrive(state, arrival, routed.fork(ttl_ns), now_ns)
    for arrival in forwards:
        copy = routed.fork(ttl_ns)
        copy.passed(topic)  # If forwards form a cycle through the topic, it is not a duplicate of itself there.
        stored += _arrive(state, arrival, copy, now_ns)
    return stored


def _arrive(state: StoreState, arrival: Arrival, routed: RoutedMessage, now_ns: i64) -> i64:
    if arrival.error:
        _dead_letter(state, arrival.entity, routed, None, FILTER_EVALUATION_FAILED, arrival.error, now_ns)
        return 1
    changed = arrival.message
    if changed is not None:
        routed = _changed_by_action(state, changed, arrival.entity, routed)
    return route(state, arrival.entity, routed, None, now_ns)


def _changed_by_action(
    state: StoreState, changed: Message, subscription: Entity, before: RoutedMessage
) -> RoutedMessage:
    """The message that a rule action produced. It has its own data.

    It expires with the message that it was made of, unless the action sets a ttl: the ttl that was sent with the
    message may have passed by now, or not apply any more (a dead-lettered message does not expire).
    """
    data = encode(changed)
    properties = changed.properties
    session_id = None if properties is None else properties.session_id
    correlation_id = None if properties is None else properties.correlation_id
    who = MessageRef(changed.id, len(data), session_id, correlation_id, changed.trace_id)
    routed = RoutedMessage(who, changed.priority, before.ttl_ns)
    own_ns = _sent_ttl_ns(changed)
    if own_ns != _sent_ttl_ns(before.content(state)):
        topic = subscription.topic
        routed.ttl_ns = effective_ttl_ns(own_ns, 0 if topic is None else topic.settings.ttl_ns)
    routed.data = data
    routed.message = changed
    routed.hops = before.hops
    routed.way = before.way
    routed.dedup_key = before.dedup_key
    return routed


def _sent_ttl_ns(message: Message) -> i64:
    properties = message.properties
    return 0 if properties is None else properties.ttl_ns


def is_taken(state: StoreState, entity: Entity, routed: RoutedMessage, now_ns: i64) -> bool:
    """Whether `route` would store the message at least once. Changes nothing."""
    if entity.kind == TOPIC and not is_stored_in(entity):
        router = state.router(entity)
        routed = routed.fork(0)
        routed.passed(entity)
        if router.takes_all:
            return any([is_taken(state, each, routed, now_ns) for each in entity.subscriptions])
        arrivals = router.arrivals(routed.content(state))
        return any([_is_arrival_taken(state, arrival, routed, now_ns) for arrival in arrivals])
    if entity.kind != TOPIC and entity.settings.forward_to and routed.hops < FORWARD_HOPS_MAX:
        target = state.find(entity.settings.forward_to)
        if target is not None:
            onward = routed.onward(entity, 0)
            admission = ask(state, target, onward, now_ns)
            if admission.is_duplicate:
                return False
            return admission.reason != "" or is_taken(state, target, onward, now_ns)
    return True  # Stored in the entity, or in its dead-letter queue.


def _is_arrival_taken(state: StoreState, arrival: Arrival, routed: RoutedMessage, now_ns: i64) -> bool:
    if arrival.error:
        return True
    if arrival.message is not None:
        routed = _changed_by_action(state, arrival.message, arrival.entity, routed)
    return is_taken(state, arrival.entity, routed, now_ns)


def arrive_by_rules(state: StoreState, subscription: Entity, routed: RoutedMessage, now_ns: i64) -> int:
    """Route a message to one subscription if its rules match. Returns the number of copies."""
    router = Router([subscription], state.new_id)
    if router.takes_all:
        route(state, subscription, routed, None, now_ns)
        return 1
    arrivals = router.arrivals(routed.content(state))
    for arrival in arrivals:
        _arrive(state, arrival, routed.fork(0), now_ns)
    return len(arrivals)


def _pass(state: StoreState, entity: Entity, routed: RoutedMessage, key: str | None, copies: int, now_ns: i64) -> None:
    # Written once in a group: a later pass refers to the same record, and a stored message has its data elsewhere.
    data = b"" if routed.carrier or routed.source is not None else routed.data
    entity.sent += 1
    record(state, Passed(now_ns, entity.number, entity.sequence + 1, routed.who, routed.priority, key, copies, data))
    if data:
        routed.carrier = state.seq


def store_copy(state: StoreState, entity: Entity, routed: RoutedMessage, key: str | None, now_ns: i64) -> None:
    """Store the message. `key` enters the dedup window of the entity; None: no dedup."""
    sequence = entity.sequence + 1
    expires_ns = expires_at_ns(now_ns, effective_ttl_ns(routed.ttl_ns, entity.settings.ttl_ns))
    source = routed.source
    # A copy shares the data of the last record that has data: recovery keeps only that one in memory. A rule action
    # with a forward writes another such record in between; a message that is stored after it has its data itself.
    # (`state.carrier` is 0, too, as long as no record has data.)
    if source is None and (not routed.carrier or routed.carrier != state.carrier):
        entry = StoredMessage(entity, sequence, routed.who, routed.priority, routed.data)
        entry.expires_ns = expires_ns
        entry.overlay = routed.overlay
        entry.hops = routed.hops
        record_sent(state, entry, key, now_ns, 0)
        return
    entity.sent += 1
    record(
        state,
        Copied(
            at_ns=now_ns,
            entity=entity.number,
            sequence=sequence,
            who=routed.who,
            priority=routed.priority,
            expires_ns=expires_ns,
            visible_ns=0,
            back=0 if source is not None else state.seq + 1 - routed.carrier,
            source_entity=0 if source is None else source.entity.number,
            source_sequence=0 if source is None else source.sequence,
            hops=routed.hops,
            overlay=routed.overlay,
            dedup_key=key,
        ),
    )


def route_kept(state: StoreState, subscription: Entity, now_ns: i64) -> None:
    """Route the messages that a topic kept while it had no subscription to its first one."""
    topic = subscription.topic
    # Copied to a list: routing changes `topic.entries`. A scheduled message stays in the topic until it is due.
    kept = [] if topic is None else [entry for entry in topic.entries.values() if entry.state == ACTIVE]
    for entry in kept:
        routed = RoutedMessage(entry.who, entry.priority, max(1, entry.expires_ns - now_ns) if entry.expires_ns else 0)
        routed.source = entry
        routed.hops = entry.hops
        routed.overlay = entry.overlay
        arrive_by_rules(state, subscription, routed, now_ns)
        # After the copies, in the same group: a crash leaves the message in the topic or in the subscription.
        record(state, Routed(now_ns, entry.entity.number, entry.sequence, entry.who))


def _dead_letter(
    state: StoreState,
    entity: Entity,
    routed: RoutedMessage,
    key: str | None,
    reason: str,
    description: str,
    now_ns: i64,
) -> None:
    """Dead-letter a message that cannot be stored where it arrived."""
    # Recorded as a pass of the entity: its sequence and its dedup window advance as if it had stored the message, so a
    # repeated send is a duplicate and is not dead-lettered twice.
    _pass(state, entity, routed, key, 1, now_ns)
    entity.dead_lettered += 1
    dead = routed.fork(0)
    dead.ttl_ns = 0  # A dead-lettered message does not expire.
    dead.overlay = dead_letter_overrides(routed.overlay, reason, description, "", 0, entity.name, "", now_ns)
    store_copy(state, dead_letters_of(state, entity, now_ns), dead, None, now_ns)


def dead_letter_overrides(
    overlay: HeaderOverrides | None,
    reason: str,
    description: str,
    signature: str,
    attempts: int,
    entity: str,
    consumer: str,
    now_ns: int,
) -> HeaderOverrides:
    headers: HeaderOverrides = dict(overlay) if overlay is not None else {}
    headers.update(dead_letter_headers(reason, description, signature, attempts, entity, consumer, now_ns))
    return headers


def dead_letters_of(state: StoreState, entity: Entity, now_ns: i64) -> Entity:
    """The dead-letter queue of an entity, created with its first message. That of a dead-letter queue is itself."""
    if entity.kind == DEAD_LETTERS:
        return entity
    if entity.dead is None:
        return declare(state, sub_queue(entity.name), DEAD_LETTERS, _DEAD_LETTER_SETTINGS, now_ns)
    return entity.dead


def declare(state: StoreState, name: str, kind: int, settings: Settings, now_ns: i64) -> Entity:
    # Numbers are never reused, also not after a deletion: changes in the log refer to them.
    number = state.numbered + 1
    name = exact_text(name)
    # The sequences of a deleted entity of this name continue: history identifies a message by name and sequence.
    record(state, Declared(now_ns, number, state.retired.get(name.casefold(), 0), name, kind, settings))
    entity = state.entities[number]
    if kind == SUBSCRIPTION:
        route_kept(state, entity, now_ns)
    return entity
