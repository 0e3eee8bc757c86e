"""The default groups of handlers in memory: one group for each handler, even if several share a qualified name.

Two handlers may share a name: `def _` twice, two closures of one function, two lambdas, the same method of two objects,
or wrappers to which `functools.wraps` gave the name of the wrapped function. Each is a handler of its own and gets
every message, so the second one is in the group `name#2`. The same function subscribed twice is one group with two
members (docs/decisions/0005-consumer-groups.md).
"""

from collections.abc import Container
from types import BuiltinMethodType, MethodType
from typing import NamedTuple

from unibus.core.topics.pattern import Pattern

_BOUND = (MethodType, BuiltinMethodType)


class NamedHandler(NamedTuple):
    """A handler, and the name that it shares with others."""

    shared: str
    handler: object


class DefaultGroups:
    """Which handler is in which default group. The caller holds the lock."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Pattern, str], NamedHandler] = {}
        self._names: dict[tuple[Pattern, str], list[str]] = {}

    def name_of(self, pattern: Pattern, shared: str, handler: object, taken: Container[object]) -> str:
        """The group of this handler. `taken`: the existing groups by pattern and name, also those with `group=`."""
        used = self._names.get((pattern, shared), [])
        for name in used:
            if _is_same(self._groups[(pattern, name)].handler, handler):
                return name
        # The plain name is free again when its handler has unsubscribed, also while `name#2` exists.
        if shared not in used:
            return shared  # A subscription with `group=` may have the same name: it chose to compete with this one.
        number = 2
        # `taken` too: a user may have named a group `name#2`, and must not compete with this handler by accident.
        while f"{shared}#{number}" in used or (pattern, f"{shared}#{number}") in taken:
            number += 1
        return f"{shared}#{number}"

    def add(self, pattern: Pattern, name: str, shared: str, handler: object) -> None:
        if (pattern, name) not in self._groups:
            self._groups[(pattern, name)] = NamedHandler(shared, handler)
            self._names.setdefault((pattern, shared), []).append(name)

    def remove(self, pattern: Pattern, name: str) -> None:
        """The group has lost its last consumer."""
        named = self._groups.pop((pattern, name), None)
        if named is not None:
            names = self._names[(pattern, named.shared)]
            names.remove(name)
            if not names:
                del self._names[(pattern, named.shared)]


def _is_same(one: object, other: object) -> bool:
    """The same object, or the same method of the same object: a bound method is a new object at each access.

    Not by `==`: a callable object may define it, and two equal objects are two handlers.
    """
    if one is other:
        return True
    if not isinstance(one, _BOUND) or not isinstance(other, _BOUND):
        return False
    return one.__self__ is other.__self__ and one.__qualname__ == other.__qualname__
