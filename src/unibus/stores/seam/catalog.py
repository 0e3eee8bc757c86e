# mypyc: compiled
"""Lookups of entities, rules and sessions: one at a time or a page at a time, never all of them.

A protocol server looks up an entity for every request. `Store.entities` builds a record of each entity, which takes
milliseconds for some thousand entities. A lookup here takes microseconds, whatever their number.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

from unibus.core.lifecycle.admission import count_new, target_of
from unibus.core.lifecycle.commands import Send
from unibus.core.lifecycle.sessions import session_ids
from unibus.core.lifecycle.state.entity import SUBSCRIPTION, Entity
from unibus.core.lifecycle.state.routing import FilterWatch
from unibus.core.lifecycle.state.rules import RuleSet
from unibus.core.lifecycle.state.state import StoreState
from unibus.core.lifecycle.state.windows import CLOCK
from unibus.stores.seam.info_of import EntityInfo, info_of
from unibus.stores.seam.pending import Pending, resolved


@final
class RuleCounts:
    """The rules of a topic: `correlations` of the `rules` have a correlation filter."""

    def __init__(self, subscriptions: int, rules: int, correlations: int) -> None:
        self.subscriptions = subscriptions
        self.rules = rules
        self.correlations = correlations


@final
class KnownEntity:
    """What every request of a server needs to know of an entity: a copy of the moment of the call.

    A change of settings replaces the object `settings`, so a caller may cache what it derives from it by its identity.
    """

    def __init__(self, entity: Entity) -> None:
        self.number: Final[int] = entity.number
        self.name: Final = entity.name
        self.kind: Final[int] = entity.kind
        self.settings: Final = entity.settings
        self.last_sequence: Final[int] = entity.sequence
        self.created_ns: Final[int] = entity.created_ns
        self.updated_ns: Final[int] = entity.updated_ns


class Catalog(Protocol):
    """Also finds the namespace, by its reserved name. No other method of a store shows it."""

    def entity(self, name: str) -> Pending[EntityInfo | None]:
        """The entity of this name, or None. Case does not matter."""

    def find(self, name: str) -> KnownEntity | None:
        """The entity of this name, without waiting: for every request of a server. Case does not matter."""

    def entity_of_lock(self, token: bytes) -> str:
        """The name of the entity whose message has this lock token, without waiting; "" if none has."""

    def count_before(self, entity: str, priority: int, sequence: int, at_most: int) -> int:
        """How many messages a claim would return before the one with this priority and sequence.

        0 is exact, larger numbers are estimates; 0 also where nothing can be claimed now. A subscription pump asks for
        each message that it delivers, while it holds its own lock: so this neither waits nor calls back.
        """

    def page(self, kind: int, topic: str, skip: int, top: int) -> Pending[list[EntityInfo]]:
        """Entities of one kind by name, of one topic if it is given: skips `skip`, returns `top`."""

    def rules(self, subscription: str) -> Pending[RuleSet | None]:
        """The compiled rules that a subscription routes by, not parsed again. None if there is no such subscription."""

    def rule_counts(self, topic: str) -> Pending[RuleCounts]:
        """How many subscriptions a topic has, and how many rules they have together."""

    def sessions(self, entity: str, updated_after_ns: int, skip: int, top: int) -> Pending[list[str]]:
        """Ids of sessions with messages or a state, in order: skips `skip`, returns `top`.

        `updated_after_ns` keeps only those whose state was set after that instant.
        """

    def session_states(self, entity: str) -> Pending[dict[str, bytes]]:
        """Session id to state, for every session of the entity that has a state, with messages or without."""

    def positions(self, prefix: str = "") -> Pending[dict[str, int]]:
        """The named positions whose names begin with `prefix`, by name. The command DeletePosition deletes one."""

    def count_new(self, commands: Sequence[Send]) -> int:
        """How many of these sends are not duplicates, without waiting. A rate limit does not count duplicates."""

    def watch_filters(self, watch: FilterWatch | None) -> None:
        """Report to `watch` how long topic filters take. It is called under the store's lock, so it must be quick."""


@final
class EmbeddedCatalog:
    """The catalog of an embedded store. `begin` raises if the store is closed or failed, and applies due deadlines."""

    def __init__(self, state: StoreState, lock: threading.RLock, begin: Callable[[], int]) -> None:
        self._state = state
        self._lock = lock
        self._begin = begin

    def entity(self, name: str) -> Pending[EntityInfo | None]:
        with self._lock:
            self._begin()
            found = self._state.find_any(name)
            return resolved(None if found is None else info_of(found))

    def find(self, name: str) -> KnownEntity | None:
        found = self._state.find_any(name)  # One dict lookup, which is atomic: it needs no lock.
        return None if found is None else KnownEntity(found)

    def entity_of_lock(self, token: bytes) -> str:
        with self._lock:  # The first call builds the index of tokens.
            entry = self._state.by_token(token)
        return "" if entry is None else entry.entity.name

    def count_before(self, entity: str, priority: int, sequence: int, at_most: int) -> int:
        with self._lock:
            # Without `_begin`: it may raise and may apply deadlines, and the caller holds a lock of its own. A message
            # that has expired is still counted, so the estimate is too high at most.
            found = self._state.find(entity)
            if found is None or not found.receives():
                return 0
            return found.waiting.count_before(priority, sequence, at_most)

    def page(self, kind: int, topic: str, skip: int, top: int) -> Pending[list[EntityInfo]]:
        with self._lock:
            self._begin()
            # The sorted list is kept between calls (StoreState.listing), so a client that reads page by page does not
            # sort for each page. An entity that is created or deleted in between shifts the pages: the protocols accept
            # that.
            listed = self._state.listing(kind, target_of(self._state, topic) if topic else None)
            return resolved([info_of(entity) for entity in listed[skip : skip + top]])

    def rules(self, subscription: str) -> Pending[RuleSet | None]:
        with self._lock:
            self._begin()
            found = self._state.find(subscription)
            if found is None or found.kind != SUBSCRIPTION:
                return resolved(None)
            return resolved(found.rule_set(self._state.new_id))

    def rule_counts(self, topic: str) -> Pending[RuleCounts]:
        with self._lock:
            self._begin()
            sets = [each.rule_set(self._state.new_id) for each in target_of(self._state, topic).subscriptions]
            rules = sum([len(each.rules) for each in sets])
            return resolved(RuleCounts(len(sets), rules, sum([each.correlations for each in sets])))

    def sessions(self, entity: str, updated_after_ns: int, skip: int, top: int) -> Pending[list[str]]:
        with self._lock:
            self._begin()
            return resolved(session_ids(target_of(self._state, entity), updated_after_ns, skip, top))

    def session_states(self, entity: str) -> Pending[dict[str, bytes]]:
        with self._lock:
            self._begin()
            found: dict[str, bytes] = {}
            for session in target_of(self._state, entity).sessions.values():
                if session.state is not None:
                    found[session.id] = session.state
            return resolved(found)

    def positions(self, prefix: str = "") -> Pending[dict[str, int]]:
        with self._lock:
            self._begin()
            found = self._state.positions
            # Not that of the store itself.
            names = sorted([name for name in found if name.startswith(prefix) and name != CLOCK])
            return resolved({name: found[name] for name in names})

    def count_new(self, commands: Sequence[Send]) -> int:
        with self._lock:
            # Only an estimate by the time the sends arrive: another send with the same key may come first. The rate
            # limit may then charge for a duplicate, and no message is affected.
            return count_new(self._state, commands, self._begin())

    def watch_filters(self, watch: FilterWatch | None) -> None:
        with self._lock:
            self._state.watch_filters(watch)
