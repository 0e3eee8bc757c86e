"""Authorization rules of a store that this process owns: read and changed without a server.

The rules of the namespace are a setting of its one reserved entity; those of a queue or topic are a setting of that
entity. A change reads all rules of the entity and writes them again, so concurrent callers must take turns.
"""

from collections.abc import Callable, Sequence

from unibus.core.access.rules import AuthorizationRule, rules_of_text, rules_text
from unibus.core.lifecycle.commands import Declare
from unibus.core.lifecycle.state.changes import Settings
from unibus.core.lifecycle.state.entity import NAMESPACE, NAMESPACE_NAME
from unibus.errors import EntityExists, EntityNotFound
from unibus.stores.seam.store import Store

SETTING = "authorization_rules"


class StoredRules:
    """The rules of one entity, or of the namespace if `entity` is empty. EntityNotFound for an unknown entity."""

    def __init__(self, store: Store, entity: str = "") -> None:
        self._store = store
        self.entity = entity
        if entity:
            # The exact name: the path of a change and the error texts use it.
            self.entity = _existing(store, entity)

    def all(self) -> tuple[AuthorizationRule, ...]:
        info = self._store.catalog.entity(self.entity or NAMESPACE_NAME).wait()
        text = None if info is None else info.settings.get(SETTING)
        return rules_of_text(text) if isinstance(text, str) else ()

    def get(self, name: str) -> AuthorizationRule:
        """EntityNotFound for an unknown name; case does not matter."""
        present = self.all()
        return present[self._index(present, name)]

    def add(self, rule: AuthorizationRule) -> None:
        """EntityExists if a rule of that name exists; case does not matter."""
        # Read and written in two steps, without a check in between: see the module for who has to take turns.
        present = self.all()
        if any([each.name.casefold() == rule.name.casefold() for each in present]):
            raise EntityExists(f"a rule {rule.name!r} exists already", "rotate its keys, or remove it first")
        self._set([*present, rule])

    def change(self, name: str, change: Callable[[AuthorizationRule], AuthorizationRule]) -> AuthorizationRule:
        """Replace a rule by its changed version. EntityNotFound for an unknown name."""
        present = self.all()
        at = self._index(present, name)
        changed = change(present[at])
        self._set([*present[:at], changed, *present[at + 1 :]])
        return changed

    def remove(self, name: str) -> AuthorizationRule:
        present = self.all()
        at = self._index(present, name)
        self._set([*present[:at], *present[at + 1 :]])
        return present[at]

    def _index(self, rules: Sequence[AuthorizationRule], name: str) -> int:
        for at, rule in enumerate(rules):
            if rule.name.casefold() == name.casefold():
                return at
        where = f"{self.entity!r}" if self.entity else "the namespace"
        raise EntityNotFound(f"{where} has no rule {name!r:.60}", "`unibus access list` lists the rules")

    def _set(self, rules: Sequence[AuthorizationRule]) -> None:
        settings: Settings = {SETTING: rules_text(list(rules))}
        if self.entity:
            # An update of one setting: kind 0 is any kind, and the other settings keep their values.
            self._store.apply([Declare(self.entity, 0, settings, True)]).wait()
        else:
            # Without `update`: the namespace is created by its first setting and changed by the same command (Declare).
            self._store.apply([Declare(NAMESPACE_NAME, NAMESPACE, settings)]).wait()


def _existing(store: Store, entity: str) -> str:
    # The namespace has rules of its own under its reserved name, and is addressed by the empty name only.
    info = store.catalog.entity(entity).wait()
    if info is None or info.name == NAMESPACE_NAME:
        raise EntityNotFound(f"there is no queue or topic {entity!r:.80}", "`unibus entities` lists all entities")
    return info.name
