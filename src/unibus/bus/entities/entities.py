"""`bus.entities`: creates, changes, lists and deletes queues, topics, subscriptions and rules by their names.

`Entities` belongs to the async API, `SyncEntities` to the sync API: it waits for the results of the former. Calling
either object gives the list of all entities. New names must follow the rules of Azure Service Bus (entity_names.py), so
that a server can offer the entities to its clients.
"""

from typing import TypeAlias

from unibus.bus.entity_names import checked_path, checked_subscription
from unibus.bus.names import folded_name
from unibus.bus.queues.operations import Queues
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import AZURE, Filter, SqlFilter
from unibus.core.lifecycle.commands import Command, Declare, DropRule, SetRule
from unibus.core.lifecycle.state.entity import (
    DEAD_LETTERS,
    KIND_NAMES,
    NAMESPACE,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    subscription_path,
)
from unibus.core.lifecycle.state.rules import Rule, RuleSet, checked_rule_name, rules_of
from unibus.core.lifecycle.state.settings import checked_settings
from unibus.display import described, without_secrets
from unibus.errors import EntityNotFound, UsageError
from unibus.stores.seam.catalog import KnownEntity
from unibus.stores.seam.info_of import EntityInfos
from unibus.stores.seam.pending import Pending
from unibus.stores.seam.store import EntityInfo

PAGE = 100
_KINDS = frozenset(name for kind, name in KIND_NAMES.items() if kind != NAMESPACE)

Infos: TypeAlias = list[EntityInfo]
Rules: TypeAlias = list[Rule]


class Entities:
    """The administration of the async API. Each method gives an awaitable; once it is done, the change is durable.

    Settings are those of `create_queue`. A subscription is named by its path, `topic/Subscriptions/name`.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        return f"of {without_secrets(self._queues.store.url)}"

    def __call__(self) -> Pending[Infos]:
        """Every queue, topic and subscription with its settings and counts."""
        # A list that a notebook shows as a table.
        return self._queues.store.entities().map(EntityInfos)

    def create_queue(self, name: str, **settings: object) -> Pending[None]:
        """Create a queue. If it exists with the same settings nothing changes; with others EntityExists is raised."""
        return self._declare(self._checked_name(name), QUEUE, settings)

    def create_topic(self, name: str, **settings: object) -> Pending[None]:
        return self._declare(self._checked_name(name), TOPIC, settings)

    def create_subscription(self, topic: str, name: str, **settings: object) -> Pending[None]:
        """`rules` is a list of Rule; without it the subscription has one rule, `$Default`, that matches everything."""
        return self._declare(subscription_path(topic, checked_subscription(name)), SUBSCRIPTION, settings)

    def _checked_name(self, name: str) -> str:
        path = checked_path(name)
        # The store does not know channels in memory: without this check a queue could take the name of one
        # (pubsub/name_space.py).
        self._queues.check_entity(path)
        return path

    def _declare(self, name: str, kind: int, settings: dict[str, object]) -> Pending[None]:
        return self._apply(Declare(name, kind, checked_settings(settings)))

    def _apply(self, command: Command) -> Pending[None]:
        # Declarations take effect at once: a rollback of an open transaction could not undo them.
        return self._queues.outside_of_transactions().store.apply([command]).map(_nothing)

    def update(self, name: str, **settings: object) -> Pending[None]:
        """Change the named settings; the others keep their values."""
        return self._queues.outside_of_transactions().update(name, settings)

    def delete(self, name: str) -> Pending[None]:
        """Delete the entity with all its messages."""
        return self._queues.outside_of_transactions().delete(name)

    def get(self, name: str) -> Pending[EntityInfo]:
        """EntityNotFound if it does not exist. Case does not matter."""
        # For its check: anything but a str is refused at the call, and not with the answer.
        folded_name(name)
        return self._queues.store.catalog.entity(name).map(lambda info: _existing(info, name))

    def exists(self, name: str) -> Pending[bool]:
        folded_name(name)
        return self._queues.store.catalog.entity(name).map(_is_listed)

    # Rules

    def create_rule(
        self, topic: str, subscription: str, name: str, filter: Filter | str, action: SqlRuleAction | str | None = None
    ) -> Pending[None]:
        """Add a rule; a str is SQL. A message is delivered if any rule matches, so delete `$Default` to filter."""
        return self._set_rule(topic, subscription, rule_of(name, filter, action), False)

    def update_rule(
        self, topic: str, subscription: str, name: str, filter: Filter | str, action: SqlRuleAction | str | None = None
    ) -> Pending[None]:
        """Replace the filter and the action of a rule."""
        return self._set_rule(topic, subscription, rule_of(name, filter, action), True)

    def _set_rule(self, topic: str, subscription: str, rule: Rule, update: bool) -> Pending[None]:
        return self._apply(SetRule(subscription_path(topic, subscription), rule, update))

    def delete_rule(self, topic: str, subscription: str, name: str) -> Pending[None]:
        """Delete a rule. A subscription without rules gets no messages."""
        return self._apply(DropRule(subscription_path(topic, subscription), name))

    def get_rule(self, topic: str, subscription: str, name: str) -> Pending[Rule]:
        path = subscription_path(topic, subscription)
        catalog = self._queues.store.catalog
        return catalog.rules(path).map(
            # `find` is called with the answer, and only for the error: which other entity has this name.
            lambda rules: named_rule(existing_rules(rules, path, catalog.find(path)), path, name)
        )

    def rules(self, topic: str, subscription: str, start: int = 0, top: int = PAGE) -> Pending[Rules]:
        """The rules by name, at most `top` of them, from index `start` on."""
        # At the call: a Pending with the error could be left without await, and the mistake would not be seen.
        _check_page(start, top)
        path = subscription_path(topic, subscription)
        catalog = self._queues.store.catalog
        return catalog.rules(path).map(lambda rules: existing_rules(rules, path, catalog.find(path)).page(start, top))

    # Last in the class: below it, the name `list` in annotations would mean this method.

    def list(
        self, kind: str | None = None, topic: str | None = None, start: int = 0, top: int = PAGE
    ) -> Pending[Infos]:
        """The entities by name, at most `top` of them, from index `start` on; of one kind, or of one topic.

        Dead-letter queues are listed only if their kind is given.
        """
        _check_page(start, top)
        if kind is not None and kind not in _KINDS:
            raise UsageError(f"there is no kind of entity {kind!r:.40}", f"use one of {', '.join(sorted(_KINDS))}")
        entities = self._queues.store.entities()
        return entities.map(lambda infos: EntityInfos(_chosen(infos, kind, topic)[start : start + top]))


class SyncEntities:
    """The same for programs without an event loop: each method returns once its change is durable."""

    def __init__(self, queues: Queues) -> None:
        self._entities = Entities(queues)

    def __repr__(self) -> str:
        return described(self, lambda: self._entities._describe())

    def __call__(self) -> Infos:
        return self._entities().wait()

    def create_queue(self, name: str, **settings: object) -> None:
        self._entities.create_queue(name, **settings).wait()

    def create_topic(self, name: str, **settings: object) -> None:
        self._entities.create_topic(name, **settings).wait()

    def create_subscription(self, topic: str, name: str, **settings: object) -> None:
        self._entities.create_subscription(topic, name, **settings).wait()

    def update(self, name: str, **settings: object) -> None:
        self._entities.update(name, **settings).wait()

    def delete(self, name: str) -> None:
        self._entities.delete(name).wait()

    def get(self, name: str) -> EntityInfo:
        return self._entities.get(name).wait()

    def exists(self, name: str) -> bool:
        return self._entities.exists(name).wait()

    def create_rule(
        self, topic: str, subscription: str, name: str, filter: Filter | str, action: SqlRuleAction | str | None = None
    ) -> None:
        self._entities.create_rule(topic, subscription, name, filter, action).wait()

    def update_rule(
        self, topic: str, subscription: str, name: str, filter: Filter | str, action: SqlRuleAction | str | None = None
    ) -> None:
        self._entities.update_rule(topic, subscription, name, filter, action).wait()

    def delete_rule(self, topic: str, subscription: str, name: str) -> None:
        self._entities.delete_rule(topic, subscription, name).wait()

    def get_rule(self, topic: str, subscription: str, name: str) -> Rule:
        return self._entities.get_rule(topic, subscription, name).wait()

    def rules(self, topic: str, subscription: str, start: int = 0, top: int = PAGE) -> Rules:
        return self._entities.rules(topic, subscription, start, top).wait()

    def list(self, kind: str | None = None, topic: str | None = None, start: int = 0, top: int = PAGE) -> Infos:
        return self._entities.list(kind, topic, start, top).wait()


def found(infos: Infos, name: str) -> EntityInfo:
    # Names of entities are equal regardless of case, in every lookup.
    folded = folded_name(name)
    for info in infos:
        if info.name.casefold() == folded:
            return info
    raise EntityNotFound(f"there is no entity {name!r:.80}", "create it first")


def _existing(info: EntityInfo | None, name: str) -> EntityInfo:
    if info is None or not _is_listed(info):
        raise EntityNotFound(f"there is no entity {name!r:.80}", "create it first")
    return info


def _is_listed(info: EntityInfo | None) -> bool:
    return info is not None and info.kind != KIND_NAMES[NAMESPACE]


def rule_of(name: str, condition: Filter | str, action: SqlRuleAction | str | None) -> Rule:
    if isinstance(condition, str):
        # Compiled here: SQL with a mistake raises at the call, before the store gets it.
        condition = SqlFilter(condition)
    elif not isinstance(condition, Filter):
        raise UsageError(f"{condition!r:.60} is not a filter", "pass SQL text, or one of the filters of unibus")
    if isinstance(action, str):
        action = SqlRuleAction(action)
    elif action is not None and not isinstance(action, SqlRuleAction):
        raise UsageError(f"{action!r:.60} is not a rule action", "pass SQL text, or a SqlRuleAction")
    return Rule(checked_rule_name(name), condition, action)


def rules_of_info(info: EntityInfo) -> Rules:
    """The rules of a subscription, decoded from its settings."""
    # Without a stored text it is the default rule. The mode decides how the SQL in the text is compared: with the types
    # of Azure, or lenient.
    text, mode = info.settings.get("rules"), info.settings.get("filter_mode")
    return rules_of(text if isinstance(text, str) else None, mode if isinstance(mode, str) else AZURE)


def existing_rules(rules: RuleSet | None, path: str, other: KnownEntity | None) -> RuleSet:
    """The rules, or EntityNotFound. `other` is the entity that has this name and is no subscription, if any."""
    if rules is not None:
        return rules
    if other is None or other.kind == NAMESPACE:
        raise EntityNotFound(f"there is no entity {path!r:.80}", "create it first")
    raise EntityNotFound(
        f"{other.name!r} is a {KIND_NAMES[other.kind]}: only subscriptions have rules", "name topic/Subscriptions/name"
    )


def named_rule(rules: RuleSet, path: str, name: str) -> Rule:
    rule = rules.find(folded_name(name))
    if rule is None:
        raise EntityNotFound(f"{path!r} has no rule {name!r:.60}", "create it first")
    # A copy: the rules of the store are live objects, and the caller may change what it gets.
    return rule.copy()


def _chosen(infos: Infos, kind: str | None, topic: str | None) -> Infos:
    if topic is not None:
        # EntityNotFound for a topic that does not exist: an empty list would look like a topic without subscriptions.
        prefix = subscription_path(found(infos, topic).name, "").casefold()
        infos = [info for info in infos if info.name.casefold().startswith(prefix)]
    if kind is None:
        # The dead-letter queue of a subscription has the prefix of the topic, too.
        infos = [info for info in infos if info.kind != KIND_NAMES[DEAD_LETTERS]]
    else:
        infos = [info for info in infos if info.kind == kind]
    # A fixed order: pages by index are meaningless without one.
    return sorted(infos, key=lambda info: info.name.casefold())


def _check_page(start: int, top: int) -> None:
    if start < 0 or top < 1:
        raise UsageError(f"start must be 0 or more and top 1 or more, got start={start} and top={top}")


def _nothing(results: object) -> None:
    return None
