"""Authorization rules of an entity: between Atom documents and the entity's settings."""

import secrets
from typing import Final

from unibus.codecs.atom.descriptions import AccessDescription
from unibus.codecs.atom.schema import AUTHORIZATION_RULES
from unibus.core.access.rights import checked_rights, words
from unibus.core.access.rules import KEY_BYTES, AuthorizationRule, key_of, rules_of_text
from unibus.endpoints.http.administration.times import time_text
from unibus.errors import BusError, ConfigInvalid

_TYPE: Final = "SharedAccessAuthorizationRule"


def rules_of(described: tuple[AccessDescription, ...], now: object) -> list[AuthorizationRule]:
    """The rules of a document. A rule without keys gets new ones.

    `now` is the current setting: a document cannot express that a rule is disabled, so a disabled rule stays disabled.
    """
    present = rules_of_text(now) if isinstance(now, str) else ()
    disabled = {rule.name.casefold() for rule in present if not rule.enabled}
    return [_rule(each, each.key_name.casefold() not in disabled) for each in described]


def _rule(described: AccessDescription, enabled: bool) -> AuthorizationRule:
    if described.type != _TYPE:
        raise ConfigInvalid(f"{AUTHORIZATION_RULES}: unknown rule type {described.type!r:.60}", f"use {_TYPE}")
    try:
        return AuthorizationRule(
            described.key_name,
            checked_rights(described.rights),
            described.primary_key or _new_key(),
            described.secondary_key or _new_key(),
            enabled,
        )
    except BusError as error:
        raise ConfigInvalid(f"{AUTHORIZATION_RULES}: {error.what}", error.hint) from error


def _new_key() -> str:
    return key_of(secrets.token_bytes(KEY_BYTES))


def descriptions_of(setting: object, created_ns: int, updated_ns: int) -> tuple[AccessDescription, ...]:
    """The rules as documents. They have no times of their own: those of the entity are used."""
    if not isinstance(setting, str):
        return ()
    return tuple(
        [
            AccessDescription(
                rule.name,
                tuple(words(rule.rights)),
                rule.primary_key,
                rule.secondary_key,
                created_time=time_text(created_ns),
                modified_time=time_text(updated_ns),
            )
            for rule in rules_of_text(setting)
        ]
    )
