# mypyc: compiled
"""What entities and sessions a store has, asked for one by one or page by page: never by a walk over all of them.

A protocol server asks for an entity with every request. `Store.entities` makes a record of each entity for that, which
takes milliseconds at some thousand of them; everything here takes microseconds, whatever their number.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol, final

from unibus.core.lifecycle.admission import count_new, target_of
from unibus.core.lifecycle.commands import Send
from unibus.core.lifecycle.sessions import session_ids
from unibus.core.lifecycle.state.entity import SUBSCRIPTION, Entity
from unibus.core.lifecycle.state.routing import FilterWatch
from unibus.core.lifecycle.state.rules import RuleSet
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.seam.info_of import EntityInfo, info_of
from unibus.stores.seam.pending import Pending, resolved


@final
class RuleCounts:
    """`correlations` of the `rules` have a correlation filter."""

    def __init__(self, subscriptions: int, rules: int, correlations: int) -> None:
        self.subscriptions = subscriptions
        self.rules = rules
        self.correlations = correlations


class Catalog(Protocol):
    """The namespace, which no other verb of a store shows, is found here by its reserved name."""

    def entity(self, name: str) -> Pending[EntityInfo | None]:
        """One of them. None if there is none of that name; case does not matter."""

    def find(self, name: str) -> Entity | None:
        """The live object, without waiting, for every request of a server. Only name, kind and settings may be read.

        Settings are replaced as a whole when they change, so that what is derived from them can be kept by identity.
        """

    def entity_of_lock(self, token: bytes) -> str:
        """The name of the entity that has the message with this lock, without waiting; empty if there is none."""

    def count_before(self, entity: str, priority: int, sequence: int, at_most: int) -> int:
        """How many messages a claim would give before one at this place: 0 exactly if none, else an estimate.

        Without waiting, as far as this process knows: asked for each message that a feed delivers, under the lock of
        the feed, so it calls nothing back. 0 where nothing can be claimed now.
        """

    def page(self, kind: int, topic: str, skip: int, top: int) -> Pending[list[EntityInfo]]:
        """Those of one kind by name, `top` of them from the one at `skip`; of one topic where it is named."""

    def rules(self, subscription: str) -> Pending[RuleSet | None]:
        """The rules of a subscription as it routes by them: not read again. None if no subscription has that name."""

    def rule_counts(self, topic: str) -> Pending[RuleCounts]:
        """How many subscriptions a topic has, and how many rules they have together."""

    def sessions(self, entity: str, updated_after_ns: int, skip: int, top: int) -> Pending[list[str]]:
        """The ids of sessions that have messages or a state, in their order, `top` of them from the one at `skip`.

        With `updated_after_ns` only those whose state was set after that instant.
        """

    def session_states(self, entity: str) -> Pending[dict[str, bytes]]:
        """The states that sessions of an entity have, by session, whether they have messages or are locked."""

    def count_new(self, commands: Sequence[Send]) -> int:
        """How many of these sends are no duplicates, without waiting. For limits that a duplicate does not count in."""

    def watch_filters(self, watch: FilterWatch | None) -> None:
        """Measure from now on how long the filters of topics take. Called with the store's lock held: it is quick."""


@final
class EmbeddedCatalog:
    """`begin` is the store's: it refuses what a closed store cannot answer, and lets time pass."""

    def __init__(self, state: StoreState, lock: threading.RLock, begin: Callable[[], int]) -> None:
        self._state = state
        self._lock = lock
        self._begin = begin

    def entity(self, name: str) -> Pending[EntityInfo | None]:
        with self._lock:
            self._begin()
            found = self._state.find_any(name)
            return resolved(None if found is None else info_of(found))

    def find(self, name: str) -> Entity | None:
        return self._state.find_any(name)  # One look into a dict: no lock.

    def entity_of_lock(self, token: bytes) -> str:
        with self._lock:  # The first of these calls makes the index.
            entry = self._state.by_token(token)
        return "" if entry is None else entry.entity.name

    def count_before(self, entity: str, priority: int, sequence: int, at_most: int) -> int:
        with self._lock:
            found = self._state.find(entity)
            if found is None or not found.receives():
                return 0
            return found.waiting.count_before(priority, sequence, at_most)

    def page(self, kind: int, topic: str, skip: int, top: int) -> Pending[list[EntityInfo]]:
        with self._lock:
            self._begin()
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

    def count_new(self, commands: Sequence[Send]) -> int:
        with self._lock:
            return count_new(self._state, commands, self._begin())

    def watch_filters(self, watch: FilterWatch | None) -> None:
        with self._lock:
            self._state.watch_filters(watch)
