"""The catalog of a store whose answers are late. What a catalog answers without waiting stays as it is."""

from collections.abc import Sequence

from unibus.core.lifecycle.commands import Send
from unibus.core.lifecycle.state.routing import FilterWatch
from unibus.core.lifecycle.state.rules import RuleSet
from unibus.stores.seam.catalog import Catalog, KnownEntity, RuleCounts
from unibus.stores.seam.info_of import EntityInfo
from unibus.stores.seam.pending import Pending
from unibus.testing.late_calls import LateCalls


class LateCatalog:
    def __init__(self, catalog: Catalog, late: LateCalls) -> None:
        self._catalog = catalog
        self._late = late

    def entity(self, name: str) -> Pending[EntityInfo | None]:
        return self._late.call(lambda: self._catalog.entity(name))

    def page(self, kind: int, topic: str, skip: int, top: int) -> Pending[list[EntityInfo]]:
        return self._late.call(lambda: self._catalog.page(kind, topic, skip, top))

    def rules(self, subscription: str) -> Pending[RuleSet | None]:
        return self._late.call(lambda: self._catalog.rules(subscription))

    def rule_counts(self, topic: str) -> Pending[RuleCounts]:
        return self._late.call(lambda: self._catalog.rule_counts(topic))

    def sessions(self, entity: str, updated_after_ns: int, skip: int, top: int) -> Pending[list[str]]:
        return self._late.call(lambda: self._catalog.sessions(entity, updated_after_ns, skip, top))

    def session_states(self, entity: str) -> Pending[dict[str, bytes]]:
        return self._late.call(lambda: self._catalog.session_states(entity))

    def positions(self, prefix: str = "") -> Pending[dict[str, int]]:
        return self._late.call(lambda: self._catalog.positions(prefix))

    # Without waiting

    def find(self, name: str) -> KnownEntity | None:
        return self._catalog.find(name)

    def entity_of_lock(self, token: bytes) -> str:
        return self._catalog.entity_of_lock(token)

    def count_before(self, entity: str, priority: int, sequence: int, at_most: int) -> int:
        return self._catalog.count_before(entity, priority, sequence, at_most)

    def count_new(self, commands: Sequence[Send]) -> int:
        return self._catalog.count_new(commands)

    def watch_filters(self, watch: FilterWatch | None) -> None:
        self._catalog.watch_filters(watch)
