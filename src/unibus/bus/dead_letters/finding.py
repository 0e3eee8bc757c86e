"""Finds dead-lettered messages: the entities that hold them, and the messages that a filter selects, oldest first.

They are in the dead-letter queues, and in the queues that an entity forwards its dead-lettered messages to. In the
latter only messages with a record of a failure count (record.py). The entities are listed first, each with its last
sequence: a message that is dead-lettered later is not found.
"""

from collections.abc import Callable, Iterator
from typing import Final

from unibus.bus.dead_letters.dead_message import original_of
from unibus.bus.dead_letters.filters import DeadLetterFilter
from unibus.bus.dead_letters.matching import Matcher, is_in_entity
from unibus.bus.dead_letters.record import dead_lettered_ns, has_record, record_of
from unibus.bus.dead_letters.steps import Steps
from unibus.bus.names import folded_name
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, KIND_NAMES, SUBSCRIPTIONS, TOPIC
from unibus.errors import EntityNotFound
from unibus.stores.seam.message_record import MessageRecord
from unibus.stores.seam.store import EntityInfo, Store

CHUNK: Final = 500
"""Messages that are read at once, and checked before the scan yields to other work."""


class EntityLookup:
    """The entities at one moment, by name, regardless of case."""

    def __init__(self, infos: list[EntityInfo]) -> None:
        self._named = {info.name.casefold(): info for info in infos}
        self._refusals: dict[str, str] = {}

    def find(self, name: str) -> EntityInfo | None:
        return self._named.get(folded_name(name))

    def why_refused(self, target: str) -> str:
        """Why no message can be moved to the target; empty if it can. Cached: a sweep asks for each message."""
        known = self._refusals.get(target)
        if known is None:
            known = self._refusals[target] = self._why_refused(target)
        return known

    def _why_refused(self, target: str) -> str:
        info = self.find(target)
        if info is None:
            return f"there is no queue, topic or subscription {target!r}"
        # A topic without subscriptions stores no copy: the message would be lost.
        if info.kind == KIND_NAMES[TOPIC] and not info.settings.get("keeps") and not self._subscriptions(info):
            return f"topic {info.name!r} has no subscription: the message would be lost"
        return ""

    def _subscriptions(self, topic: EntityInfo) -> list[EntityInfo]:
        """The subscriptions of a topic, without their dead-letter queues."""
        start = f"{topic.name}/{SUBSCRIPTIONS}/".casefold()
        return [info for name, info in self._named.items() if name.startswith(start) and "$" not in name[len(start) :]]

    def places(self, pattern: str | None) -> Iterator[str]:
        """The names of the entities that hold dead-lettered messages and match the pattern, sorted."""
        named = None if pattern is None else self.find(pattern)
        chosen = [info for info in self._named.values() if info.kind == KIND_NAMES[DEAD_LETTERS]]
        chosen += self._forwarded_to()
        # An exact name may be any queue, also one that got its dead-lettered messages by a setting that was removed
        # since.
        if named is not None:
            chosen.append(named)
        seen = {info.name for info in chosen if info.kind != KIND_NAMES[TOPIC] and is_in_entity(pattern, info.name)}
        return iter(sorted(seen))

    def _forwarded_to(self) -> list[EntityInfo]:
        targets = {str(info.settings.get("forward_dead_letters_to") or "") for info in self._named.values()}
        found = [info for info in map(self.find, targets) if info is not None]
        return found + [each for info in found for each in self._subscriptions(info)]


def entities_of(store: Store) -> Steps[EntityLookup]:
    infos: list[EntityInfo] = yield store.entities()
    return EntityLookup(infos)


class FoundMessages:
    """The messages that a filter selects, and the errors of those that it could not check: (id, why)."""

    def __init__(self, entities: EntityLookup) -> None:
        self.entities = entities
        self.entries: list[MessageRecord] = []
        self.errors: list[tuple[str, str]] = []


def find(store: Store, chosen: DeadLetterFilter, now_ns: int) -> Steps[FoundMessages]:
    """What is dead-lettered now and matches, in the order in which it was dead-lettered."""
    found = FoundMessages((yield from entities_of(store)))
    yield from scan(store, chosen, now_ns, found, found.entries.extend)
    # The sort is stable: messages of one entity with the same time keep the order of their sequences.
    found.entries.sort(key=dead_lettered_ns)
    return found


def scan(
    store: Store,
    chosen: DeadLetterFilter,
    now_ns: int,
    found: FoundMessages,
    take: Callable[[list[MessageRecord]], object],
    narrow: Callable[[list[MessageRecord]], list[MessageRecord]] | None = None,
) -> Steps[None]:
    """Pass the matching messages to `take` in chunks: entity by entity, in the order of their sequences.

    `narrow` is a cheap first filter of the caller, applied before the real one.
    """
    matcher = Matcher(chosen, now_ns)
    for place in found.entities.places(chosen.queue):
        info = found.entities.find(place)
        until, at = 0 if info is None else info.last_sequence, 0
        while at <= until:
            some = yield from page_until(store, place, at, until)
            if not some:
                break
            at = some[-1].sequence + 1
            # A message may be settled after its page was read: the store checks its state again when a command is
            # applied.
            wanted = some if narrow is None else narrow(some)
            taken = [each for each in wanted if _is_dead_lettered(each) and matcher.takes(each)]
            take(taken if chosen.where is None else (yield from _apply_where(store, chosen, taken, found)))


def page_until(store: Store, place: str, at: int, until: int) -> Steps[list[MessageRecord]]:
    """The next messages of an entity from a sequence on. Other tasks and threads run before it is read."""
    try:
        some: list[MessageRecord] = yield store.list_messages(place, at, CHUNK)
    except EntityNotFound:
        return []  # The entity was deleted since it was listed.
    return [each for each in some if each.sequence <= until]


def _is_dead_lettered(entry: MessageRecord) -> bool:
    # A queue that dead-lettered messages are forwarded to may also get ordinary messages: those have no record.
    return entry.kind == DEAD_LETTERS or has_record(entry)


def _apply_where(
    store: Store, chosen: DeadLetterFilter, entries: list[MessageRecord], found: FoundMessages
) -> Steps[list[MessageRecord]]:
    """The messages for which the user's function is true. If it raises, that is an error of this one message."""
    taken: list[MessageRecord] = []
    data = yield store.read_bodies([entry.key for entry in entries])
    for entry in entries:
        if entry.key not in data:
            continue  # Settled since it was listed.
        try:
            assert chosen.where is not None
            if chosen.where(original_of(data[entry.key], record_of(entry), entry.sequence)):
                taken.append(entry)
        except Exception as error:
            found.errors.append((entry.who.message_id, f"the filter raised {type(error).__name__}: {error}"))
    return taken
