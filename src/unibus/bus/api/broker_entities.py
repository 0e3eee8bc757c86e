# mypyc: compiled
"""The operations of protocol servers on entities: queues, topics, subscriptions, rules, authorization rules.

Input is checked as Azure's clients expect it: names by entity_names.py, and `create` fails for a name that exists. Only
`created_ns` iterates over all entities. `access_rules`, which every request needs, is cached until the settings of the
entity are replaced.
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
    subscription_path,
)
from unibus.core.lifecycle.state.routing import FilterWatch
from unibus.core.lifecycle.state.rules import Rule, RuleSet
from unibus.core.lifecycle.state.settings import EntitySettings, checked_settings
from unibus.errors import EntityNotFound, NameInvalid, UsageError
from unibus.stores.seam.catalog import Catalog, KnownEntity, RuleCounts
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
        # For `bus/management`, the operations of operators.
        self.queues = self._queues
        self.store: Final[Store] = self._store
        self._opened_ns = self._queues.now_ns()
        # By the number of the entity, with the settings that the rules were decoded from: another settings object means
        # another text.
        self._access: dict[int, tuple[EntitySettings, tuple[AuthorizationRule, ...]]] = {}

    # Entities

    def create(self, kind: int | str, name: str, settings: Mapping[str, object] | None = None) -> Pending[None]:
        """Create an entity. Raises EntityExists if the name exists, with any settings."""
        number = _kind(kind)
        # `new_only`: unlike in the Python API, creating the same entity twice is an error in Azure's protocols.
        path = _subscription(self._store.catalog, name) if number == SUBSCRIPTION else checked_server_path(name)
        return self._declare(Declare(path, number, checked_settings(settings or {}), new_only=True))

    def update(self, name: str, settings: Mapping[str, object]) -> Pending[None]:
        """Change the given settings; the others stay."""
        return self._declare(Declare(name, 0, checked_settings(settings), True))

    def delete(self, name: str) -> Pending[None]:
        """Delete an entity with its subscriptions and all messages, the dead-lettered ones included."""
        # `tap` and not `on_done`: blocked publishers may continue as soon as the change is decided, and must not wait
        # for the disk.
        return self._store.apply([Drop(name)]).tap(lambda _: self.recount(name)).map(_nothing)

    def entity(self, name: str) -> Pending[EntityInfo]:
        """The entity of that name, in any case. The answer raises EntityNotFound if none exists."""
        return self._store.catalog.entity(name).map(lambda info: _existing(info, name))

    def entities(
        self, kind: int | str, topic: str | None = None, skip: int = 0, top: int = 100
    ) -> Pending[list[EntityInfo]]:
        """A page of the entities of one kind, by name; for subscriptions those of the given topic."""
        _check_page(skip, top)
        return self._store.catalog.page(_kind(kind), topic or "", skip, top)

    def watch_filters(self, watch: FilterWatch | None) -> None:
        """Report from now on how long the filters of topics take, one report for each message."""
        self._store.catalog.watch_filters(watch)

    def find(self, name: str) -> KnownEntity:
        """The entity of that name, in any case, without waiting. Raises EntityNotFound."""
        found = self._store.catalog.find(name)
        # The namespace is stored as an entity with a reserved name, which no client may address.
        if found is None or found.kind == NAMESPACE:
            raise EntityNotFound(f"entity {name!r:.80} does not exist", "create it first")
        return found

    def _declare(self, command: Declare) -> Pending[None]:
        return self._store.apply([command]).tap(lambda _: self.recount(command.name)).map(_nothing)

    def recount(self, name: str) -> None:
        """Count the free places of a channel again: another subscription may be the slowest one now."""
        topic, mark, _ = name.rpartition(_MARK)
        if mark and self._runtime.durable is not None:
            self._runtime.durable.recount(topic)

    # Rules

    def create_rule(self, subscription: str, rule: Rule) -> Pending[None]:
        """Add a rule. Raises EntityExists if the subscription has a rule of that name."""
        return self._store.apply([SetRule(subscription, rule)]).map(_nothing)

    def update_rule(self, subscription: str, rule: Rule) -> Pending[None]:
        """Replace filter and action of a rule. Raises EntityNotFound if no rule has that name."""
        return self._store.apply([SetRule(subscription, rule, True)]).map(_nothing)

    def delete_rule(self, subscription: str, name: str) -> Pending[None]:
        """Delete a rule. A subscription without any rule gets no messages."""
        return self._store.apply([DropRule(subscription, name)]).map(_nothing)

    def rules(self, subscription: str, skip: int = 0, top: int = 100) -> Pending[list[Rule]]:
        """A page of the rules, by name: `top` of them from the position `skip`."""
        _check_page(skip, top)
        return self._store.catalog.rules(subscription).map(
            lambda rules: self._existing_rules(rules, subscription).page(skip, top)
        )

    def rule(self, subscription: str, name: str) -> Pending[Rule]:
        return self._store.catalog.rules(subscription).map(
            lambda rules: named_rule(self._existing_rules(rules, subscription), subscription, name)
        )

    def _existing_rules(self, rules: RuleSet | None, subscription: str) -> RuleSet:
        # Looked up again for the error text only: the name may belong to a queue or topic.
        return existing_rules(rules, subscription, self._store.catalog.find(subscription))

    def rules_of(self, info: EntityInfo) -> Pending[list[Rule]]:
        """All rules of a listed subscription; from its listed settings if it was deleted meanwhile."""
        return self._store.catalog.rules(info.name).map(
            lambda rules: rules_of_info(info) if rules is None else rules.rules
        )

    def rule_counts(self, topic: str) -> Pending[RuleCounts]:
        """How many subscriptions and rules a topic has."""
        return self._store.catalog.rule_counts(topic)

    # The namespace

    def created_ns(self) -> int:
        """When the oldest entity of the namespace was created; when the store was opened if no entity has a time.

        Iterates over all entities: a server calls it once.
        """
        found = self._store.catalog.find(NAMESPACE_NAME)
        times = [int(info.created_ns) for info in self._store.entities().wait()]
        # The namespace is not in the list of entities. A time of 0 means that none is stored.
        times += [] if found is None else [int(found.created_ns)]
        return min([each for each in times if each], default=self._opened_ns)

    def namespace_updated_ns(self) -> int:
        """When a setting of the namespace was changed; 0 for never."""
        found = self._store.catalog.find(NAMESPACE_NAME)
        return 0 if found is None else int(found.updated_ns)

    # Authorization

    def namespace_rules(self) -> tuple[AuthorizationRule, ...]:
        """The authorization rules of the namespace. The same object as long as they do not change."""
        return self._rules_of(self._store.catalog.find(NAMESPACE_NAME))

    def set_namespace_rules(self, rules: Iterable[AuthorizationRule]) -> Pending[None]:
        """Replace all authorization rules of the namespace."""
        text = rules_text(list(checked_rules(rules)))
        command = Declare(NAMESPACE_NAME, NAMESPACE, {"authorization_rules": text})
        return self._store.apply([command]).map(_nothing)

    def access_rules(self, name: str) -> Sequence[AuthorizationRule]:
        """The authorization rules of a queue or topic, for `Access(rules_of=…)`. Empty for an unknown name."""
        found = self._store.catalog.find(name)
        return () if found is None or found.kind == NAMESPACE else self._rules_of(found)

    def _rules_of(self, entity: KnownEntity | None) -> tuple[AuthorizationRule, ...]:
        text = None if entity is None else entity.settings.given.get("authorization_rules")
        if entity is None or not isinstance(text, str):
            return ()
        # Compared by identity: a change of settings makes a new object, so no request has to compare texts.
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
        raise NameInvalid(f"{path!r:.80} is not the path of a subscription", "use topic/Subscriptions/name")
    # The name before the topic: an invalid name is reported as that, also for a topic that does not exist.
    checked = checked_subscription(name)
    found = catalog.find(topic)
    if found is None or found.kind != TOPIC:
        raise EntityNotFound(f"topic {topic!r:.80} does not exist", "create it first")
    return subscription_path(found.name, checked)


def _kind(kind: int | str) -> int:
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind]
    if isinstance(kind, int) and kind in _KINDS.values():
        return kind
    raise UsageError(f"unknown kind of entity {kind!r:.40}", f"use {', '.join(sorted(_KINDS))}")


def _existing(info: EntityInfo | None, name: str) -> EntityInfo:
    if info is None or info.kind == KIND_NAMES[NAMESPACE]:
        raise EntityNotFound(f"entity {name!r:.80} does not exist", "create it first")
    return info


def _check_page(skip: int, top: int) -> None:
    if skip < 0 or not 1 <= top <= PAGE_MAX:
        raise UsageError(f"skip must be 0 or more and top from 1 to {PAGE_MAX}, got skip={skip} and top={top}")


def _nothing(results: object) -> None:
    return None
