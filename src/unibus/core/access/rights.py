"""The three rights of Azure: Send, Listen, and Manage, which implies the other two."""

import enum
from collections.abc import Iterable

from unibus.errors import ConfigInvalid


class Right(enum.Enum):
    """The value is the word in settings and in protocols."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


def checked_rights(given: Iterable[object]) -> frozenset[Right]:
    """Rights, or their words, as a set. Manage must be given together with Send and Listen, as in Azure."""
    # A str is an iterable of its characters, and is never meant as one.
    listed = [] if isinstance(given, str) else [_right(one) for one in given]
    rights = frozenset(listed)
    if not listed or len(rights) < len(listed):
        raise ConfigInvalid(
            "the rights of a rule are empty, or name one right twice", "give a list of Send, Listen, Manage"
        )
    if Right.MANAGE in rights and len(rights) < len(Right):
        raise ConfigInvalid("Manage was given without Send and Listen", "it includes them: give all three")
    return rights


def words(rights: Iterable[Right]) -> list[str]:
    """The words in one fixed order, so that equal rules have equal texts."""
    return sorted(right.value for right in rights)


def grants(rights: frozenset[Right], right: Right) -> bool:
    return right in rights or Right.MANAGE in rights


def _right(one: object) -> Right:
    if isinstance(one, Right):
        return one
    for right in Right:
        if one == right.value:
            return right
    raise ConfigInvalid(f"there is no right {one!r:.40}", "Send, Listen or Manage")
