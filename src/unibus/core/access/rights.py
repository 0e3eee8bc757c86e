"""The three rights, as Azure has them: Send, Listen, and Manage, which implies the other two."""

import enum
from collections.abc import Iterable

from unibus.errors import ConfigInvalid


class Right(enum.Enum):
    """The value is the word that stands in settings and on the wire."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


def checked_rights(given: Iterable[object]) -> frozenset[Right]:
    """Rights, or their words, as a set. Whoever gives Manage has to say Send and Listen too, as in Azure."""
    # A text is a collection of its letters, and never meant that way.
    listed = [] if isinstance(given, str) else [_right(one) for one in given]
    rights = frozenset(listed)
    if not listed or len(rights) < len(listed):
        raise ConfigInvalid("a rule's rights are empty or name one twice", "a list of Send, Listen, Manage")
    if Right.MANAGE in rights and len(rights) < len(Right):
        raise ConfigInvalid("Manage was given without Send and Listen", "it implies them: give all three")
    return rights


def words(rights: Iterable[Right]) -> list[str]:
    """In one order, so that equal rules are written alike."""
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
