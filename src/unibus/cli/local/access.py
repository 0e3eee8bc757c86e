"""Authorization rules of a store that this process has opened as its owner."""

from typing import TYPE_CHECKING

from unibus.bus.entities.access import StoredRules
from unibus.bus.management.settings.access import (
    AccessRule,
    AddRequest,
    RemoveRuleRequest,
    RotateRequest,
    add,
    all_rules,
    remove,
    rotate,
    rules_of,
)

if TYPE_CHECKING:
    from unibus.core.access.rules import AuthorizationRule
    from unibus.stores.seam.store import Store


class LocalAccess:
    """See `management.AccessRules`."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    def list(self, entity: str) -> list[AccessRule]:
        if entity:
            return rules_of(self._store, entity).rules
        page = all_rules(self._store)
        found = [*page.rules]
        while page.next is not None:
            page = all_rules(self._store, page.next)
            found += page.rules
        return found

    def add(self, entity: str, request: AddRequest) -> AccessRule:
        return add(self._store, entity, request)

    def rotate(self, entity: str, request: RotateRequest) -> AccessRule:
        return rotate(self._store, entity, request)

    def remove(self, entity: str, name: str) -> AccessRule:
        return remove(self._store, entity, RemoveRuleRequest(name))

    def with_keys(self, entity: str, name: str) -> "AuthorizationRule":
        found = [each for each in StoredRules(self._store, entity).all() if each.name.casefold() == name.casefold()]
        return found[0] if found else StoredRules(self._store).get(name)
