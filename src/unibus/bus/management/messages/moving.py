"""Moves messages to another entity or removes them, on behalf of an operator: by their sequences, all or none per call.

A locked message is not touched: if its sequence is named, the call is refused (MessageNotFound), else it stays. A move
is one change of the store: the message is in exactly one of the two entities, also after a crash.
"""

from itertools import islice
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from unibus.bus.dead_letters.record import recovered_overlay
from unibus.bus.dead_letters.steps import walk
from unibus.bus.dead_letters.sweep import own_ttls
from unibus.bus.management.messages.documents import Int64
from unibus.bus.management.messages.peeking import PAGE_MAX
from unibus.core.envelope.fields import plain_text
from unibus.core.lifecycle.commands import MOVE_REDIRECT, Command, Move, Remove, SendResult
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, NAMESPACE
from unibus.core.lifecycle.state.states import ACTIVE
from unibus.errors import EntityNotFound, UsageError
from unibus.stores.seam.message_record import MessageRecord
from unibus.stores.seam.store import Store
from unibus.stores.seam.store_view import OpenStoreView, find_message, messages_of

REMOVED: Final = "removed by an operator"

Sequences = Annotated[list[Int64], Meta(min_length=1, max_length=PAGE_MAX)]


class MoveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`sequences` null selects the first active messages, as many as one call allows. `to` is a queue or a topic."""

    to: Annotated[str, Meta(min_length=1, max_length=1_000)]
    sequences: Sequences | None = None


class MoveAnswer(msgspec.Struct, frozen=True):
    """`left` is the number of active messages in the entity now."""

    moved: int
    left: int


class RemoveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sequences: Sequences
    reason: Annotated[str, Meta(max_length=1_000)] = ""


class RemoveAnswer(msgspec.Struct, frozen=True):
    removed: int


def move(store: Store, now_ns: int, entity: str, request: MoveRequest) -> MoveAnswer:
    """Move all messages or none: MessageNotFound if one is settled or locked. It blocks on the store.

    Messages of a dead-letter queue lose the record of their failure, as in a redirect. The time-to-live of a message
    continues; for a dead-lettered message it starts again.
    """
    source = _found(store, entity)
    if source == _found(store, request.to):
        raise UsageError(f"{source!r} is both the entity and the target", "name another target")
    entries = _entries(store, source, request.sequences)
    # Read from the bodies: the record has the moment of expiry, and not the ttl that the sender gave.
    ttls = walk(own_ttls(store, entries))
    moves = [_move(entry, request.to, ttls.get(entry.key, 0), now_ns) for entry in entries]
    commands: list[Command] = [*moves]
    if request.sequences is None:
        for command in moves:
            command.raises = False  # If a receiver has locked it meanwhile, it is skipped.
    else:
        known = {entry.sequence for entry in entries}
        # Commands for unknown sequences make the store refuse the whole batch, with its own error.
        commands += [Move(source, each, request.to) for each in request.sequences if each not in known]
    results = store.apply(commands).wait() if commands else []
    info = store.catalog.entity(source).wait()
    moved = sum(isinstance(each, SendResult) for each in results)
    return MoveAnswer(moved, 0 if info is None else info.active)


def _found(store: Store, name: str) -> str:
    found = store.catalog.find(name)
    if found is None or found.kind == NAMESPACE:
        raise EntityNotFound(f"there is no entity {name!r:.80}", "create it first")
    return found.name


def _entries(store: Store, source: str, sequences: list[int] | None) -> list[MessageRecord]:
    view = OpenStoreView(store)
    if sequences is None:
        info = store.catalog.entity(source).wait()
        messages = [] if info is None else messages_of(view, info)
        return list(islice((entry for entry in messages if entry.state == ACTIVE), PAGE_MAX))
    # Each sequence once: one message cannot be moved twice in a batch.
    found = [find_message(view, source, sequence) for sequence in dict.fromkeys(sequences)]
    return [entry for entry in found if entry is not None]


def _move(entry: MessageRecord, target: str, ttl_ns: int, now_ns: int) -> Move:
    command = Move(entry.entity, entry.sequence, target)
    command.action = MOVE_REDIRECT
    if entry.kind == DEAD_LETTERS:
        command.overlay = recovered_overlay(entry)
        command.ttl_ns = ttl_ns
    elif ttl_ns and entry.expires_ns:
        # What is left of it, at least 1: 0 would mean that it never expires.
        command.ttl_ns = max(1, entry.expires_ns - now_ns)
    return command


def remove(store: Store, entity: str, request: RemoveRequest) -> RemoveAnswer:
    """Remove all messages or none: MessageNotFound if one is settled or locked. It blocks on the store."""
    # It is stored in history, outside of a message: text that no journal could write is refused.
    reason = plain_text("the reason", request.reason) or REMOVED
    sequences = dict.fromkeys(request.sequences)
    store.apply([Remove(entity, sequence, reason) for sequence in sequences]).wait()
    return RemoveAnswer(len(sequences))
