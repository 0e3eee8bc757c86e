# mypyc: compiled
"""What a token is for, and whether that covers what somebody wants to use.

A resource is a host and a path. Paths are compared by whole segments and without case, so `q1` covers `Q1` and
`q1/$DeadLetterQueue`, and never `q10`. An empty path is the whole namespace. Nothing is tidied up: `..` or a second
slash in a path are letters of a name that no entity has. A query is no part of the path: Azure's JavaScript client
signs the whole address of each request.

A rule stands on the namespace, or on a queue or topic, its home. What it can open ends there: a rule on the queue
`orders` opens its dead letters, and not the queue `orders/eu`, though a token for `orders` may.
"""

import re
from typing import Final, NamedTuple

SCHEMES: Final = frozenset({"sb", "amqp", "amqps", "http", "https"})
_AUTHORITY: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")

NAMESPACE: Final[tuple[str, ...]] = ()


class Scope(NamedTuple):
    """`path` is as it was written, without slashes around it; `host` and `segments` have no case."""

    host: str
    path: str
    segments: tuple[str, ...]


def scope_of(uri: str, hosts: frozenset[str] | None = None) -> Scope | None:
    """A URI such as `sb://host:5671/queue` as a scope, or None if it is none. The port does not matter.

    Some clients leave the scheme out. Then the first segment has to be one of the hosts that are known, or have a port:
    a lone name must not be taken for a host, for that would make the token of one queue a token for all.
    """
    scheme, found, rest = uri.partition("://")
    authority, _, path = (rest if found else uri).partition("/")
    match = _AUTHORITY.fullmatch(authority)
    if match is None or (found and scheme.lower() not in SCHEMES):
        return None
    host = match[1].lower()
    if not found and ":" not in authority and (hosts is None or host not in hosts):
        return None
    path = path.partition("?")[0].strip("/")
    return Scope(host, path, segments_of(path))


def segments_of(name: str) -> tuple[str, ...]:
    """The name of an entity by its segments; that of the namespace is empty."""
    return tuple(name.casefold().split("/")) if name else NAMESPACE


def covers(scope: tuple[str, ...], target: tuple[str, ...]) -> bool:
    return target[: len(scope)] == scope


def home_of(segments: tuple[str, ...]) -> tuple[str, ...]:
    """The queue or topic that a path belongs to: without subscriptions, sub-queues and management nodes."""
    for at, segment in enumerate(segments):
        if segment.startswith("$") or segment == "subscriptions":
            return segments[:at]
    return segments
