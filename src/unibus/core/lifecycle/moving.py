# mypyc: compiled
"""Operations of operators on messages in a backlog: move and discard. And named positions, for idempotent batches.

A move is atomic: all of its changes are in one group of the journal, so after a crash the message is in one entity or
in the other, never in both and never in none.
"""

from mypy_extensions import i64

from unibus.core.lifecycle.admission import check_target_quotas, target_of
from unibus.core.lifecycle.commands import Advance, DeletePosition, Forget, Move, Remove, SendResult
from unibus.core.lifecycle.routed_message import RoutedMessage
from unibus.core.lifecycle.sending import is_taken, route
from unibus.core.lifecycle.state.apply import record
from unibus.core.lifecycle.state.changes import Advanced, Forgotten, Moved, Pruned, Purged
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, Entity, StoredMessage
from unibus.core.lifecycle.state.state import Load, StoreState
from unibus.core.lifecycle.state.states import LOCKED, STATE_NAMES
from unibus.core.lifecycle.state.windows import CLOCK
from unibus.errors import MessageNotFound, PositionMoved, SessionRequired, UsageError


def waiting_entry(state: StoreState, name: str, sequence: int, raises: bool) -> StoredMessage | None:
    """The message, if it exists and is not locked. Else None, or MessageNotFound with `raises`."""
    entity = target_of(state, name) if raises else state.find(name)
    entry = None if entity is None else entity.entries.get(sequence)
    if entry is not None and entry.state != LOCKED:
        return entry
    if raises:
        is_now = "does not exist" if entry is None else f"is {STATE_NAMES[entry.state]}"
        raise MessageNotFound(
            f"{name!r} has no waiting message #{sequence}: it {is_now}", "peek again; a receiver may have locked it"
        )
    return None


def check_move(state: StoreState, command: Move, before: dict[str, Load], now_ns: i64) -> StoredMessage | None:
    """Raise if the move is not possible. `before` has what the batch has sent so far."""
    target = target_of(state, command.target)
    if target.kind == DEAD_LETTERS:
        raise UsageError(f"messages cannot be moved to {target.name!r}", "choose a queue, a topic or a subscription")
    entry = waiting_entry(state, command.entity, command.sequence, command.raises)
    if entry is not None:
        # A move removes the original, so it must not end in a topic that stores no copy. A send may: there the
        # publisher decides.
        if not is_taken(state, target, _moved(entry, command), now_ns):
            raise UsageError(
                f"no entity behind {target.name!r} accepts {entry.entity.name!r} #{entry.sequence}: "
                "no rule matches it, or it is a duplicate there",
                "it was not moved; add a subscription or a rule that matches it, or move it elsewhere",
            )
        who = entry.who if command.who is None else command.who
        if target.settings.requires_session and who.session_id is None and not target.settings.forward_to:
            raise SessionRequired(f"{target.name!r} requires a session_id", "the message has no session_id")
        check_target_quotas(target, who.size, before)
    return entry


def move(state: StoreState, command: Move, now_ns: i64) -> SendResult | None:
    """Execute a move that was checked. None if there was nothing to move."""
    entry = waiting_entry(state, command.entity, command.sequence, False)
    if entry is None:
        return None
    target = target_of(state, command.target)
    routed = _moved(entry, command)
    # The copy is recorded before the original ends (Moved below), in one group.
    if route(state, target, routed, None, now_ns) == 0:
        return None  # A rule with random values matched it when it was checked, and does not now: it stays.
    record(
        state,
        Moved(
            now_ns,
            entry.entity.number,
            entry.sequence,
            entry.who,
            entry.delivery_count,
            entry.enqueued_ns,
            target.name,
            command.action,
        ),
    )
    return SendResult(target.name, target.sequence, routed.who.message_id, False)


def _moved(entry: StoredMessage, command: Move) -> RoutedMessage:
    """The message as it will arrive at the target."""
    # A new id needs new data: a stored message is identified by the id in its data.
    who = entry.who if command.who is None or command.data is None else command.who
    routed = RoutedMessage(who, entry.priority, command.ttl_ns)
    routed.overlay = entry.overlay if command.overlay is None else command.overlay
    if command.data is None:
        routed.source = entry
    else:
        routed.data = command.data
    return routed


def remove_by_hand(state: StoreState, command: Remove, now_ns: i64) -> bool:
    entry = waiting_entry(state, command.entity, command.sequence, command.raises)
    if entry is None:
        return False
    record(state, Purged(now_ns, entry.entity.number, entry.sequence, entry.who, command.reason))
    return True


def check_position(state: StoreState, command: Advance | DeletePosition, before: set[str]) -> None:
    name = command.name
    if name in before:
        raise UsageError(f"position {name!r} changes twice in one batch")
    before.add(name)
    position = state.positions.get(name, 0)
    # Compare and set: of two writers with the same position one is rejected, and with it its whole batch.
    if position != command.expected:
        raise PositionMoved(
            f"position {name!r} is at {position}, not at {command.expected}",
            "read it again: everything before it is done",
            position,
        )
    if isinstance(command, Advance):
        if command.to < position:
            raise UsageError(f"position {name!r} cannot go back from {position} to {command.to}")
    elif name == CLOCK:
        raise UsageError(f"{name!r} is a position of the store itself")


def advance(state: StoreState, command: Advance, now_ns: i64) -> None:
    record(state, Advanced(now_ns, 0, 0, command.name, command.to))


def delete_position(state: StoreState, command: DeletePosition, now_ns: i64) -> None:
    if command.expected:  # Else there is nothing to delete: 0 is where every position begins.
        record(state, Advanced(now_ns, 0, 0, command.name, 0))


def forget(state: StoreState, command: Forget, now_ns: i64) -> None:
    entity: Entity = target_of(state, command.entity)
    if command.who is None:
        record(state, Pruned(now_ns, entity.number, command.sequence))
    else:
        record(state, Forgotten(now_ns, entity.number, command.sequence, command.who))
