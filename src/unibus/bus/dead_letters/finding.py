"""Finding dead letters: the places where they lie, and those that a filter takes, the first to die first.

They lie in the dead-letter queues, and in the queues that some entity forwards its dead letters to: there those that
carry the record of a death. Both are read as they are at one moment; what dies later is not found.
"""

from collections.abc import Callable, Iterator
from typing import Final

from unibus.bus.dead_letters.dead_message import original_of
from unibus.bus.dead_letters.filters import DeadLetterFilter
from unibus.bus.dead_letters.matching import Matcher, lies_in
from unibus.bus.dead_letters.record import died_ns, is_dead, record_of
from unibus.bus.dead_letters.steps import Steps
from unibus.bus.names import folded_name
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, KIND_NAMES, SUBSCRIPTIONS, TOPIC, StoredMessage
from unibus.core.lifecycle.state.states import GONE
from unibus.errors import EntityNotFound
from unibus.stores.seam.pending import resolved
from unibus.stores.seam.store import EntityInfo, Store

LOOK: Final = 500
"""Letters whose bodies are read at once, and letters that are looked at before others get their turn."""


class EntityLookup:
    """What there is, by name, whatever its case."""

    def __init__(self, infos: list[EntityInfo]) -> None:
        self._named = {info.name.casefold(): info for info in infos}
        self._hindrances: dict[str, str] = {}

    def find(self, name: str) -> EntityInfo | None:
        return self._named.get(folded_name(name))

    def hindrance(self, target: str) -> str:
        """Why nothing can be moved there; empty if it can."""
        known = self._hindrances.get(target)
        if known is None:
            known = self._hindrances[target] = self._hindrance(target)
        return known

    def _hindrance(self, target: str) -> str:
        info = self.find(target)
        if info is None:
            return f"there is no queue, topic or subscription {target!r}"
        if info.kind == KIND_NAMES[TOPIC] and not info.settings.get("keeps") and not self._heard(info):
            return f"nobody is subscribed to {info.name!r}, the message would be gone"
        return ""

    def _heard(self, topic: EntityInfo) -> list[EntityInfo]:
        start = f"{topic.name}/{SUBSCRIPTIONS}/".casefold()
        return [info for name, info in self._named.items() if name.startswith(start) and "$" not in name[len(start) :]]

    def places(self, pattern: str | None) -> Iterator[str]:
        """Where dead letters lie, of those that the pattern means."""
        named = None if pattern is None else self.find(pattern)
        chosen = [info for info in self._named.values() if info.kind == KIND_NAMES[DEAD_LETTERS]]
        chosen += self._forwarded_to()
        if named is not None:
            chosen.append(named)
        seen = {info.name for info in chosen if info.kind != KIND_NAMES[TOPIC] and lies_in(pattern, info.name)}
        return iter(sorted(seen))

    def _forwarded_to(self) -> list[EntityInfo]:
        targets = {str(info.settings.get("forward_dead_letters_to") or "") for info in self._named.values()}
        found = [info for info in map(self.find, targets) if info is not None]
        return found + [each for info in found for each in self._heard(info)]


def entities_of(store: Store) -> Steps[EntityLookup]:
    infos: list[EntityInfo] = yield store.entities()
    return EntityLookup(infos)


class FoundMessages:
    """The letters that a filter takes, and those of which it could not be told: (id, why)."""

    def __init__(self, entities: EntityLookup) -> None:
        self.entities = entities
        self.entries: list[StoredMessage] = []
        self.errors: list[tuple[str, str]] = []


def find(store: Store, chosen: DeadLetterFilter, now_ns: int) -> Steps[FoundMessages]:
    """What is dead now, in the order in which it died."""
    found = FoundMessages((yield from entities_of(store)))
    yield from scan(store, chosen, now_ns, found, found.entries.extend)
    # By time; those of one place that died at the same moment keep their order.
    found.entries.sort(key=died_ns)
    return found


def scan(
    store: Store,
    chosen: DeadLetterFilter,
    now_ns: int,
    found: FoundMessages,
    take: Callable[[list[StoredMessage]], object],
    narrow: Callable[[list[StoredMessage]], list[StoredMessage]] | None = None,
) -> Steps[None]:
    """Give what is dead now to `take`, a few at a time: place by place, in the order of their sequences.

    `narrow` leaves out what the caller does not want anyway, before the filter is asked.
    """
    matcher = Matcher(chosen, now_ns)
    for place in found.entities.places(chosen.queue):
        held = _held(store, place)
        for start in range(0, len(held), LOOK):
            if start:
                yield resolved(None)
            some = held[start : start + LOOK]
            wanted = some if narrow is None else narrow(some)
            taken = [each for each in wanted if _lies_dead(each) and matcher.takes(each)]
            take(taken if chosen.where is None else _judged(store, chosen, taken, found))


def _held(store: Store, place: str) -> list[StoredMessage]:
    try:
        return store.held(place)
    except EntityNotFound:
        return []  # Deleted since it was listed.


def _lies_dead(entry: StoredMessage) -> bool:
    return entry.state != GONE and (entry.entity.kind == DEAD_LETTERS or is_dead(entry))


def _judged(
    store: Store, chosen: DeadLetterFilter, entries: list[StoredMessage], found: FoundMessages
) -> list[StoredMessage]:
    """Those that the function says yes to. One that it cannot judge is an error of that one."""
    taken: list[StoredMessage] = []
    data = store.data_of(entries)
    for entry in entries:
        if entry not in data:
            continue
        try:
            assert chosen.where is not None
            if chosen.where(original_of(data[entry], record_of(entry), int(entry.sequence))):
                taken.append(entry)
        except Exception as error:
            found.errors.append((entry.who.message_id, f"the filter raised {type(error).__name__}: {error}"))
    return taken
