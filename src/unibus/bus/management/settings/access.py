"""Authorization rules as records: of the namespace, and of queues and topics.

A record has keys only if the request that created them asked for it; existing keys are never shown. All functions
block on the store: do not call them on an event loop. A change reads all rules and writes them again, so the callers of
one store must take turns.
"""

import secrets
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from unibus.bus.entities.access import SETTING, StoredRules
from unibus.bus.management.messages.peeking import PAGE_MAX
from unibus.core.access.rights import Right, words
from unibus.core.access.rules import KEY_BYTES, AuthorizationRule, rules_of_text
from unibus.core.lifecycle.state.entity import KIND_NAMES, QUEUE, TOPIC
from unibus.limits import ACCESS_NAME_CHARS_MAX
from unibus.stores.seam.store import Store

_WITH_RULES = (KIND_NAMES[QUEUE], KIND_NAMES[TOPIC])
RuleName = Annotated[str, Meta(min_length=1, max_length=ACCESS_NAME_CHARS_MAX)]

# Only the schema has the enum: other names are refused by AuthorizationRule, with the same error as in process.
RightName = Annotated[str, Meta(extra_json_schema={"enum": [right.value for right in Right]})]


class AccessRule(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`entity` is null for a rule of the namespace. Keys are present only if the request asked for new keys."""

    name: str
    rights: list[str]
    entity: str | None
    enabled: bool
    primary_key: str | UnsetType = UNSET
    secondary_key: str | UnsetType = UNSET


class AccessPage(msgspec.Struct, frozen=True):
    """Rules of the namespace, then of each entity by name. `next` is the `after` of the next page, null at the end."""

    rules: list[AccessRule]
    next: str | None


class AddRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: RuleName
    rights: Annotated[list[RightName], Meta(min_length=1, max_length=3)]
    show_keys: bool = False


class RotateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`both` replaces both keys: for a key that has leaked."""

    name: RuleName
    both: bool = False
    show_keys: bool = False


class RemoveRuleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: RuleName


def record_of(rule: AuthorizationRule, entity: str, show_keys: bool = False) -> AccessRule:
    return AccessRule(
        name=rule.name,
        rights=words(rule.rights),
        entity=entity or None,
        enabled=rule.enabled,
        primary_key=rule.primary_key if show_keys else UNSET,
        secondary_key=rule.secondary_key if show_keys else UNSET,
    )


def rules_of(store: Store, entity: str) -> AccessPage:
    """The rules of one entity. EntityNotFound if it does not exist."""
    stored = StoredRules(store, entity)
    return AccessPage([record_of(rule, stored.entity) for rule in stored.all()], None)


def all_rules(store: Store, after: str = "") -> AccessPage:
    """The rules of the namespace and of the entities after `after`, in pages of whole entities."""
    found = [] if after else [record_of(rule, "") for rule in StoredRules(store).all()]
    for info in store.entities().wait():
        # From the list and not one by one: a namespace may have thousands of entities, and few with rules.
        text = info.settings.get(SETTING)
        if info.name > after and info.kind in _WITH_RULES and isinstance(text, str):
            found += [record_of(rule, info.name) for rule in rules_of_text(text)]
            # After a whole entity: `next` is its name, so no rule of it is skipped or shown twice.
            if len(found) >= PAGE_MAX:
                return AccessPage(found, info.name)
    return AccessPage(found, None)


def add(store: Store, entity: str, request: AddRequest) -> AccessRule:
    """Add a rule with two new keys. EntityExists if a rule of that name exists."""
    made = AuthorizationRule.generated(request.name, request.rights, secrets.token_bytes(2 * KEY_BYTES))
    stored = StoredRules(store, entity)
    stored.add(made)
    return record_of(made, stored.entity, request.show_keys)


def rotate(store: Store, entity: str, request: RotateRequest) -> AccessRule:
    """Create a new primary key. The old one becomes the secondary key, so that its tokens stay valid until they
    expire."""

    def rotated(rule: AuthorizationRule) -> AuthorizationRule:
        # Twice for `both`: the second rotation moves the new key to the secondary place, and the leaked one is gone.
        once = rule.rotated(secrets.token_bytes(KEY_BYTES))
        return once.rotated(secrets.token_bytes(KEY_BYTES)) if request.both else once

    stored = StoredRules(store, entity)
    return record_of(stored.change(request.name, rotated), stored.entity, request.show_keys)


def remove(store: Store, entity: str, request: RemoveRuleRequest) -> AccessRule:
    stored = StoredRules(store, entity)
    return record_of(stored.remove(request.name), stored.entity)
