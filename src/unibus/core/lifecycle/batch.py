# mypyc: compiled
"""One atomic batch: every command is checked before the first one is executed, so that an error changes nothing.

check all ──▶ error: nothing changed
    │
    └──▶ execute all ──▶ changes, which the store writes as one group of its journal
"""

from collections.abc import Sequence

from mypy_extensions import i64

from unibus.core.lifecycle.admission import check_send, target_of
from unibus.core.lifecycle.commands import (
    DEAD_LETTER,
    LEAVE_SESSION,
    Advance,
    Cancel,
    Command,
    Declare,
    DeletePosition,
    Drop,
    DropRule,
    Forget,
    Move,
    Remove,
    Renew,
    Send,
    SessionCommand,
    SetRule,
    Settle,
)
from unibus.core.lifecycle.declaring import check_declare, check_drop, check_rule, declare_entity, drop_entity, set_rule
from unibus.core.lifecycle.moving import (
    advance,
    check_move,
    check_position,
    delete_position,
    forget,
    move,
    remove_by_hand,
    waiting_entry,
)
from unibus.core.lifecycle.sending import send
from unibus.core.lifecycle.sessions import change_session, check_session
from unibus.core.lifecycle.settling import cancel, check_texts, lock_of, locked_entry, renew, scheduled_entry, settle
from unibus.core.lifecycle.state.entity import Session, StoredMessage
from unibus.core.lifecycle.state.state import Load, StoreState
from unibus.errors import BusError, UsageError
from unibus.limits import BATCH_COMMANDS_MAX


def run(state: StoreState, commands: Sequence[Command], now_ns: i64) -> list[object]:
    """Execute all of them, or raise. One result for each: a SendResult, the end of a lock, whether a message was
    removed, or None. An error has the index of the command that is rejected (`BusError.command_index`).

    `state.deciding` is True from the first change on: the caller resets it once it has taken the changes for the log.
    """
    if len(commands) == 1:
        # The most common batch: a single send needs no record of what the batch has sent before.
        only = commands[0]
        if isinstance(only, Send):
            try:
                check_send(state, only, now_ns, None)
            except BusError as error:
                error.command_index = 0
                raise
            state.deciding = True
            return [send(state, only, now_ns)]
    # Nothing can come between the check and the execution: the caller holds the store's lock for both. So a command
    # that was accepted finds the state as it was checked, but for what the batch itself has done.
    granted = check(state, commands, now_ns)
    state.deciding = True
    # Forwards are decided while the batch runs, and must leave the space that the check has granted to later sends.
    state.batch = granted
    try:
        return [_do(state, command, now_ns) for command in commands]
    finally:
        state.batch = None


def check(state: StoreState, commands: Sequence[Command], now_ns: i64) -> dict[str, Load]:
    """Raise the error of the first command that is rejected, with its index. Returns the space granted to their sends,
    by entity."""
    if len(commands) > BATCH_COMMANDS_MAX:
        raise UsageError(
            f"the batch has {len(commands)} commands, at most {BATCH_COMMANDS_MAX} are allowed", "use several batches"
        )
    # What the commands so far will have done: the state does not show it yet, because none of them is executed.
    before: dict[str, Load] = {}
    settled: set[StoredMessage] = set()
    left: set[tuple[str, str]] = set()
    positions: set[str] = set()
    index = 0
    try:
        for command in commands:
            if isinstance(command, Send):
                check_send(state, command, now_ns, before)
            elif isinstance(command, Settle):
                _check_settle(state, command, settled, left, now_ns)
            elif isinstance(command, Renew):
                entry = lock_of(state, command, now_ns)
                if entry in settled:
                    where = f"{entry.entity.name!r} #{entry.sequence}"
                    raise UsageError(f"{where} is settled and then renewed in one batch")
                _not_left(left, entry.session)
            elif isinstance(command, Cancel):
                _once(settled, scheduled_entry(state, command))
            elif isinstance(command, SessionCommand):
                session = check_session(state, command, now_ns)
                _not_left(left, session)
                if command.verb == LEAVE_SESSION:
                    left.add((session.entity.name, session.id))
            elif isinstance(command, (Move, Remove)):
                _check_by_hand(state, command, settled, before, now_ns)
            else:
                _check_rare(state, command, positions, len(commands) == 1)
            index += 1
    except BusError as error:
        error.command_index = index
        raise
    return before


def _check_settle(
    state: StoreState, command: Settle, settled: set[StoredMessage], left: set[tuple[str, str]], now_ns: i64
) -> None:
    if command.sequence >= 0:
        entry = locked_entry(state, command.entity, command.sequence, command.token, now_ns)
    else:
        entry = lock_of(state, command, now_ns)
    # Found once: `settle` uses it without a second lookup.
    command.entry = entry
    if command.verb == DEAD_LETTER:
        check_texts(command)
    _once(settled, entry)
    _not_left(left, entry.session)


def _check_rare(state: StoreState, command: Command, positions: set[str], is_alone: bool) -> None:
    if isinstance(command, (Advance, DeletePosition)):
        check_position(state, command, positions)
    elif isinstance(command, Forget):
        target_of(state, command.entity)
    elif isinstance(command, Declare):
        check_declare(state, command, is_alone)
    elif isinstance(command, (SetRule, DropRule)):
        check_rule(state, command, is_alone)
    else:
        assert isinstance(command, Drop)
        check_drop(state, command, is_alone)


def _check_by_hand(
    state: StoreState, command: Move | Remove, settled: set[StoredMessage], before: dict[str, Load], now_ns: i64
) -> None:
    if isinstance(command, Move):
        entry = check_move(state, command, before, now_ns)
    else:
        entry = waiting_entry(state, command.entity, command.sequence, command.raises)
    if entry is not None:
        _once(settled, entry)


def _once(settled: set[StoredMessage], entry: StoredMessage) -> None:
    if entry in settled:
        raise UsageError(f"{entry.entity.name!r} #{entry.sequence} is settled twice in one batch")
    settled.add(entry)


def _not_left(left: set[tuple[str, str]], session: Session | None) -> None:
    """Releasing a session requeues its messages: a later command of the batch would find neither of them locked."""
    if session is not None and (session.entity.name, session.id) in left:
        where = f"session {session.id!r} of {session.entity.name!r}"
        raise UsageError(f"{where} is released before the last command that uses it", "release it last")


def _do(state: StoreState, command: Command, now_ns: i64) -> object:
    if isinstance(command, Send):
        return send(state, command, now_ns)
    if isinstance(command, Settle):
        settle(state, command, now_ns)
    elif isinstance(command, Renew):
        return renew(state, command, now_ns)
    elif isinstance(command, Cancel):
        cancel(state, command, now_ns)
    elif isinstance(command, SessionCommand):
        return change_session(state, command, now_ns)
    elif isinstance(command, Move):
        return move(state, command, now_ns)
    elif isinstance(command, Remove):
        return remove_by_hand(state, command, now_ns)
    elif isinstance(command, Advance):
        advance(state, command, now_ns)
    elif isinstance(command, DeletePosition):
        delete_position(state, command, now_ns)
    elif isinstance(command, Forget):
        forget(state, command, now_ns)
    elif isinstance(command, Declare):
        declare_entity(state, command, now_ns)
    elif isinstance(command, (SetRule, DropRule)):
        set_rule(state, command, now_ns)
    else:
        assert isinstance(command, Drop)
        drop_entity(state, command, now_ns)
    return None
