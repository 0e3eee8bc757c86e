"""Replays history, traces one message through it, prunes it by age, and deletes single messages from it.

A position in history is a sequence of an entity, or an instant, which is converted to a sequence. Pruned and deleted
messages are never replayed again; the file itself shrinks when the store trims its history.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from unibus.bus.history.trace import MessageTrace, trace_of
from unibus.core.codec.codec import decode
from unibus.core.envelope.fields import plain_text
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import Command, Forget, Remove
from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.changes import MessageRef
from unibus.core.lifecycle.state.entity import KIND_NAMES, TOPIC
from unibus.errors import UsageError
from unibus.stores.seam.store import Store
from unibus.stores.seam.store_view import OpenStoreView, find_message, messages_of

PAGE: Final = 1_000
_DELETED: Final = "deleted"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def trace(store: Store, message_id: object) -> MessageTrace:
    checked = _message_id(message_id)
    view = OpenStoreView(store)
    return trace_of(checked, view.events_of(checked), partial(find_message, view), view.entities)


def replay(store: Store, channel: str, after: object) -> Iterator[Message]:
    """The messages that the channel stored after a sequence, or from an instant on, in the order of sequences."""
    sequence, since_ns = _begin(after)
    for number, data in store.history.replay_index(channel, sequence, since_ns).messages():
        message = decode(data)
        message.sequence = number
        yield message


async def replay_async(store: Store, channel: str, after: object) -> AsyncIterator[Message]:
    """The same for an event loop: a thread reads page by page, so that the loop never waits for the disk."""
    # One generator, used by one thread at a time: the next page is asked for only after the previous one was consumed.
    messages = replay(store, channel, after)
    while page := await asyncio.to_thread(_next_page, messages):
        for message in page:
            yield message


def _next_page(messages: Iterator[Message]) -> list[Message]:
    return list(itertools.islice(messages, PAGE))


def prune(store: Store, before: object, channel: str | None) -> int:
    """Remove history before a sequence or an instant. The backlog of queues stays; messages kept by topics are removed.

    Gives the number of removed messages.
    """
    if channel is None and isinstance(before, int):
        raise UsageError(
            "a sequence needs a channel: each channel counts its own", "name the channel, or pass a datetime"
        )
    infos = store.entities().wait()
    topics = {info.name for info in infos if info.kind == KIND_NAMES[TOPIC]}
    names = [info.name for info in infos] if channel is None else [channel]
    return sum(_prune(store, name, before, name in topics) for name in names)


def _prune(store: Store, name: str, before: object, keeps: bool) -> int:
    # `cut` is the first sequence that stays. An instant becomes a sequence: the first one stored at or after it, or one
    # after the last, if all are older.
    stored = store.history.replay_index(name, 0, 0).places()
    view, info = OpenStoreView(store), store.catalog.entity(name).wait() if keeps else None
    held = [] if info is None else [each for each in messages_of(view, info) if each.enqueued_ns]
    cut, since_ns = _begin(before)
    if since_ns:
        later = [*store.history.replay_index(name, 0, since_ns).places()]
        later += [entry.sequence for entry in held if entry.enqueued_ns >= since_ns]
        cut = min(later, default=max([*stored, *(entry.sequence for entry in held)], default=0) + 1)
    gone = {sequence for sequence in stored if sequence < cut}
    kept = [entry.sequence for entry in held if entry.sequence < cut]
    if gone or kept:
        # In pages: a crash between two of them leaves a shorter history, and the same call again finishes the rest.
        # Forget first: a kept message whose removal was not reached stays in its topic, but is not replayed any more.
        commands: list[Command] = [Forget(name, cut - 1)]
        for sequence in kept:
            remove = Remove(name, sequence, "pruned")
            remove.raises = False
            commands.append(remove)
        for start in range(0, len(commands), PAGE):
            store.apply(commands[start : start + PAGE]).wait()
    return len(gone.union(kept))


def delete(store: Store, message_id: object) -> int:
    """Delete one message from every entity and from history. Gives the number of entities that had it.

    An in-flight copy stays with its consumer, but is never replayed.
    """
    commands = deletion(store, message_id)
    if commands:
        store.apply(commands).wait()
    return len([command for command in commands if isinstance(command, Forget)])


def deletion(store: Store, message_id: object) -> list[Command]:
    """The commands for `delete`."""
    checked = _message_id(message_id)
    commands: list[Command] = []
    view = OpenStoreView(store)
    for event, sequence in _places(store.history.events_of(checked)):
        if find_message(view, event.channel, sequence) is not None:
            remove = Remove(event.channel, sequence, _DELETED)
            remove.raises = False
            commands.append(remove)
        # In the same batch as the removal: a message is never gone from its queue and still replayed.
        commands.append(Forget(event.channel, sequence, MessageRef(checked, event.size or 0)))
    return commands


def _places(events: list[Event]) -> list[tuple[Event, int]]:
    """The (event, sequence) of every entity that has or had the message and has not deleted it."""
    found: dict[tuple[str, int], Event] = {}
    # A scheduled message gets a new sequence when its time is reached: follow it, or the deletion would miss it.
    for event in events:
        if event.kind in ("sent", "published", "copied", "scheduled"):
            found[event.channel, event.sequence] = event
        elif event.kind == "activated":
            found.pop((event.channel, event.sequence), None)
            found[event.channel, int((event.attrs or {})["new_sequence"])] = event
        elif event.kind in ("forgotten", "purged", "cancelled"):
            found.pop((event.channel, event.sequence), None)
    return [(event, sequence) for (_, sequence), event in found.items()]


def _message_id(given: object) -> str:
    if isinstance(given, Message):
        return given.id
    if not isinstance(given, str) or not given:
        raise UsageError(f"a message id must be a str that is not empty, not {given!r}", "pass an id, or a Message")
    return plain_text("the id of a message", given)


def instant_ns(given: datetime) -> int:
    """Nanoseconds since 1970, in 64 bits."""
    if given.utcoffset() is None:
        raise UsageError(f"datetime {given} has no time zone", "use datetime.now(UTC), for instance")
    found = (given - EPOCH) // timedelta(microseconds=1) * 1_000
    if not -(2**63) <= found < 2**63:
        raise UsageError(f"datetime {given} is out of range", "use a year from 1678 to 2262")
    return found


def _begin(given: object) -> tuple[int, int]:
    """(sequence, 0) for a sequence, (0, instant) for a datetime."""
    if isinstance(given, datetime):
        return 0, instant_ns(given)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**63:
        raise UsageError(f"{given!r} is not a position in history", "pass a sequence (0 or more), or a datetime")
    return given, 0
