# mypyc: compiled
"""The operations of protocol servers on entities: queues, topics, subscriptions, rules, and who may use them.

Everything is checked here as Azure's clients expect it: names by entity_names.py, `create` fails for a name that
exists. No operation but `created_ns` walks over all entities, and what every request asks for (`access_rules`) is kept
until the settings it comes from are replaced.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from unibus.bus.api.runtime import BusRuntime
from unibus.bus.entities.entities import existing_rules, named_rule, rules_of_info
from unibus.bus.entity_names import checked_server_path, checked_subscription
from unibus.core.access.rules import AuthorizationRule, checked_rules, rules_of_text, rules_text
from unibus.core.lifecycle.commands import Declare, Drop, DropRule, SetRule
from unibus.core.lifecycle.state.entity import (
    KIND_NAMES,
    NAMESPACE,
    NAMESPACE_NAME,
    SUBSCRIPTION,
    SUBSCRIPTIONS,
    TOPIC,
    Entity,
    subscription_path,
)
from unibus.core.lifecycle.state.routing import FilterWatch
from unibus.core.lifecycle.state.rules import Rule, RuleSet
from unibus.core.lifecycle.state.settings import EntitySettings, checked_settings
from unibus.errors import EntityNotFound, NameInvalid, UsageError
from unibus.stores.seam.catalog import Catalog, RuleCounts
from unibus.stores.seam.pending import Pending
from unibus.stores.seam.store import EntityInfo, Store

PAGE_MAX: Final = 10_000
RULES_REMEMBERED_MAX: Final = 20_000
_KINDS: Final = {name: kind for kind, name in KIND_NAMES.items() if kind != NAMESPACE}
_MARK: Final = f"/{SUBSCRIPTIONS}/"


class EntityOperations:
    """The half of Broker that administration uses. Subscriptions are named by `topic/Subscriptions/name`."""

    def __init__(self, runtime: BusRuntime) -> None:
        self._runtime = runtime
        self._queues = runtime.queues()
        self._store = self._queues.store
        # For `bus/management`, which does what operators need beside the operations of clients.
        self.queues = self._queues
        self.store: Final[Store] = self._store
        self._opened_ns = self._queues.now_ns()
        self._access: dict[int, tuple[EntitySettings, tuple[AuthorizationRule, ...]]] = {}

    # Entities

    def create(self, kind: int | str, name: str, settings: Mapping[str, object] | None = None) -> Pending[None]:
        """EntityExists for a name that exists, whatever its settings."""
        number = _kind(kind)
        path = _subscription(self._store.catalog, name) if number == SUBSCRIPTION else checked_server_path(name)
        return self._declare(Declare(path, number, checked_settings(settings or {}), new_only=True))

    def update(self, name: str, settings: Mapping[str, object]) -> Pending[None]:
        """Change the settings that are named; the others stay."""
        return self._declare(Declare(name, 0, checked_settings(settings), True))

    def delete(self, name: str) -> Pending[None]:
        """With its subscriptions, its dead-lettered messages and all others."""
        pending = self._store.apply([Drop(name)])
        self.recount(name)
        return pending.map(_nothing)

    def entity(self, name: str) -> Pending[EntityInfo]:
        """EntityNotFound with the answer if there is none. Case does not matter."""
        return self._store.catalog.entity(name).map(lambda info: _existing(info, name))

    def entities(
        self, kind: int | str, topic: str | None = None, skip: int = 0, top: int = 100
    ) -> Pending[list[EntityInfo]]:
        """Those of one kind by name; the subscriptions of one topic where it is named."""
        _check_page(skip, top)
        return self._store.catalog.page(_kind(kind), topic or "", skip, top)

    def watch_filters(self, watch: FilterWatch | None) -> None:
        """Report from now on how long the filters of topics take, one report for each message."""
        self._store.catalog.watch_filters(watch)

    def find(self, name: str) -> Entity:
        """The live entity, for its name, kind and settings. EntityNotFound if there is none."""
        found = self._store.catalog.find(name)
        if found is None or found.kind == NAMESPACE:
            raise EntityNotFound(f"there is no entity {name!r:.80}", "create it first")
        return found

    def _declare(self, command: Declare) -> Pending[None]:
        pending = self._store.apply([command])
        self.recount(command.name)
        return pending.map(_nothing)

    def recount(self, name: str) -> None:
        """Blocked publishers of a channel wait for its slowest subscription, which may be another one now."""
        topic, mark, _ = name.rpartition(_MARK)
        if mark and self._runtime.durable is not None:
            self._runtime.durable.recount(topic)

    # Rules

    def create_rule(self, subscription: str, rule: Rule) -> Pending[None]:
        """EntityExists if the subscription has a rule of that name."""
        return self._store.apply([SetRule(subscription, rule)]).map(_nothing)

    def update_rule(self, subscription: str, rule: Rule) -> Pending[None]:
        """Filter and action as they are from now on; EntityNotFound if there is no rule of that name."""
        return self._store.apply([SetRule(subscription, rule, True)]).map(_nothing)

    def delete_rule(self, subscription: str, name: str) -> Pending[None]:
        """Without any rule a subscription gets nothing."""
        return self._store.apply([DropRule(subscription, name)]).map(_nothing)

    def rules(self, subscription: str, skip: int = 0, top: int = 100) -> Pending[list[Rule]]:
        """By name, `top` of them from the one at `skip`."""
        _check_page(skip, top)
        return self._store.catalog.rules(subscription).map(
            lambda rules: self._existing_rules(rules, subscription).page(skip, top)
        )

    def rule(self, subscription: str, name: str) -> Pending[Rule]:
        return self._store.catalog.rules(subscription).map(
            lambda rules: named_rule(self._existing_rules(rules, subscription), subscription, name)
        )

    def _existing_rules(self, rules: RuleSet | None, subscription: str) -> RuleSet:
        return existing_rules(rules, subscription, self._store.catalog.find(subscription))

    def rules_of(self, info: EntityInfo) -> Pending[list[Rule]]:
        """All rules of a subscription that was just listed; as its settings have them, if it was deleted since."""
        return self._store.catalog.rules(info.name).map(
            lambda rules: rules_of_info(info) if rules is None else rules.rules
        )

    def rule_counts(self, topic: str) -> Pending[RuleCounts]:
        """How many subscriptions and rules a topic has."""
        return self._store.catalog.rule_counts(topic)

    # The namespace

    def created_ns(self) -> int:
        """When the oldest entity of the namespace was created; when the store was opened if none has such a time.

        It walks over all entities: a server asks once.
        """
        found = self._store.catalog.find(NAMESPACE_NAME)
        times = [int(info.created_ns) for info in self._store.entities().wait()]
        times += [] if found is None else [int(found.created_ns)]
        return min([each for each in times if each], default=self._opened_ns)

    def namespace_updated_ns(self) -> int:
        """When a setting of the namespace was changed; 0 for never."""
        found = self._store.catalog.find(NAMESPACE_NAME)
        return 0 if found is None else int(found.updated_ns)

    # Who may do what

    def namespace_rules(self) -> tuple[AuthorizationRule, ...]:
        """Those of the whole namespace. The same object as long as they are the same."""
        return self._rules_of(self._store.catalog.find(NAMESPACE_NAME))

    def set_namespace_rules(self, rules: Iterable[AuthorizationRule]) -> Pending[None]:
        """All of them, in place of those before."""
        text = rules_text(list(checked_rules(rules)))
        command = Declare(NAMESPACE_NAME, NAMESPACE, {"authorization_rules": text})
        return self._store.apply([command]).map(_nothing)

    def access_rules(self, name: str) -> Sequence[AuthorizationRule]:
        """Those of one queue or topic, for `Access(rules_of=…)`. None for an unknown name; case does not matter."""
        found = self._store.catalog.find(name)
        return () if found is None or found.kind == NAMESPACE else self._rules_of(found)

    def _rules_of(self, entity: Entity | None) -> tuple[AuthorizationRule, ...]:
        text = None if entity is None else entity.settings.given.get("authorization_rules")
        if entity is None or not isinstance(text, str):
            return ()
        known = self._access.get(entity.number)
        if known is None or known[0] is not entity.settings:
            if len(self._access) >= RULES_REMEMBERED_MAX:
                self._access.clear()
            known = (entity.settings, rules_of_text(text))
            self._access[entity.number] = known
        return known[1]


def _subscription(catalog: Catalog, path: str) -> str:
    topic, mark, name = path.rpartition(_MARK)
    if not mark:
        raise NameInvalid(f"{path!r:.80} names no subscription", "topic/Subscriptions/name")
    checked = checked_subscription(name)
    found = catalog.find(topic)
    if found is None or found.kind != TOPIC:
        raise EntityNotFound(f"there is no topic {topic!r:.80}", "create it first")
    return subscription_path(found.name, checked)


def _kind(kind: int | str) -> int:
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind]
    if isinstance(kind, int) and kind in _KINDS.values():
        return kind
    raise UsageError(f"there is no kind {kind!r:.40}", f"use {', '.join(sorted(_KINDS))}")


def _existing(info: EntityInfo | None, name: str) -> EntityInfo:
    if info is None or info.kind == KIND_NAMES[NAMESPACE]:
        raise EntityNotFound(f"there is no entity {name!r:.80}", "create it first")
    return info


def _check_page(skip: int, top: int) -> None:
    if skip < 0 or not 1 <= top <= PAGE_MAX:
        raise UsageError(f"{top} entries from {skip} on", f"skip is 0 or more, top from 1 to {PAGE_MAX}")


def _nothing(results: object) -> None:
    return None
