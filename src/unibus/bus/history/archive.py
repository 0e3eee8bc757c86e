"""What was stored before: replaying it, tracing one message through it, and taking things out of it.

A message is addressed by its sequence in its entity; an instant is turned into one. What is taken out is not replayed
any more from then on; the file gets smaller when history is trimmed.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
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

PAGE: Final = 1_000
_BY_HAND: Final = "deleted"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def trace(store: Store, message_id: object) -> MessageTrace:
    checked = _message_id(message_id)
    return trace_of(checked, store.history.events_of(checked), store.find, lambda: store.entities().wait())


def replay(store: Store, channel: str, after: object) -> Iterator[Message]:
    """Messages that the channel stored after a sequence, or from an instant on, in the order of their sequences."""
    sequence, since_ns = _begin(after)
    for number, data in store.history.replay(channel, sequence, since_ns):
        message = decode(data)
        message.sequence = number
        yield message


async def replay_async(store: Store, channel: str, after: object) -> AsyncIterator[Message]:
    """The same for a loop, which must not wait for the disk."""
    messages = replay(store, channel, after)
    while page := await asyncio.to_thread(_some, messages):
        for message in page:
            yield message


def _some(messages: Iterator[Message]) -> list[Message]:
    return list(itertools.islice(messages, PAGE))


def prune(store: Store, before: object, channel: str | None) -> int:
    """Forget what was stored before a sequence, or an instant. What waits in a queue stays; what a topic kept goes."""
    if channel is None and isinstance(before, int):
        raise UsageError("sequences are counted per channel", "name the channel, or give an instant")
    infos = store.entities().wait()
    topics = {info.name for info in infos if info.kind == KIND_NAMES[TOPIC]}
    names = [info.name for info in infos] if channel is None else [channel]
    return sum(_prune(store, name, before, name in topics) for name in names)


def _prune(store: Store, name: str, before: object, keeps: bool) -> int:
    stored = store.history.stored(name, 0, 0)
    held = [entry for entry in store.held(name) if entry.enqueued_ns] if keeps else []
    cut, since_ns = _begin(before)
    if since_ns:
        later = [*store.history.stored(name, 0, since_ns)]
        later += [entry.sequence for entry in held if entry.enqueued_ns >= since_ns]
        cut = min(later, default=max([*stored, *(entry.sequence for entry in held)], default=0) + 1)
    gone = {sequence for sequence in stored if sequence < cut}
    kept = [entry.sequence for entry in held if entry.sequence < cut]
    if gone or kept:
        commands: list[Command] = [Forget(name, cut - 1)]
        for sequence in kept:
            remove = Remove(name, sequence, "pruned")
            remove.raises = False
            commands.append(remove)
        for start in range(0, len(commands), PAGE):
            store.apply(commands[start : start + PAGE]).wait()
    return len(gone.union(kept))


def delete(store: Store, message_id: object) -> int:
    """Take one message out of every place, and out of replay. Gives how many places that were.

    A copy that a consumer works on is left to him, but is not replayed later.
    """
    commands = deletion(store, message_id)
    if commands:
        store.apply(commands).wait()
    return len([command for command in commands if isinstance(command, Forget)])


def deletion(store: Store, message_id: object) -> list[Command]:
    """The commands that do it."""
    checked = _message_id(message_id)
    commands: list[Command] = []
    for event, sequence in _places(store.history.events_of(checked)):
        if store.find(event.channel, sequence) is not None:
            remove = Remove(event.channel, sequence, _BY_HAND)
            remove.raises = False
            commands.append(remove)
        commands.append(Forget(event.channel, sequence, MessageRef(checked, event.size or 0)))
    return commands


def _places(events: list[Event]) -> list[tuple[Event, int]]:
    """Where it is or was; a place that was forgotten before is none."""
    found: dict[tuple[str, int], Event] = {}
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
        raise UsageError(f"a message is known by its id, not by {given!r}")
    return plain_text("the id of a message", given)


def instant_ns(given: datetime) -> int:
    """Where in history that is: an instant that 64 bits hold."""
    if given.utcoffset() is None:
        raise UsageError("an instant needs its time zone", "datetime.now(UTC), for instance")
    found = (given - EPOCH) // timedelta(microseconds=1) * 1_000
    if not -(2**63) <= found < 2**63:
        raise UsageError(f"{given} is out of range", "from 1678 to 2262")
    return found


def _begin(given: object) -> tuple[int, int]:
    """(sequence, 0), or (0, instant)."""
    if isinstance(given, datetime):
        return 0, instant_ns(given)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**63:
        raise UsageError(f"{given!r} is no place in history", "a sequence, or a datetime")
    return given, 0
