# mypyc: compiled
"""The scope of a token, and whether it covers an entity.

A resource is a host and a path. Paths are compared by whole segments and without case, so `q1` covers `Q1` and
`q1/$DeadLetterQueue`, and never `q10`. An empty path is the whole namespace. Nothing is normalised: `..` or a second
slash are part of a name that no entity has. A query is not part of the path: Azure's JavaScript client signs the whole
address of each request.

A rule is defined on the namespace, or on a queue or topic: its home. It grants nothing outside of its home: a rule on
the queue `orders` grants access to its dead-letter queue, and not to the queue `orders/eu`, although a token with the
scope `orders` of a rule on the namespace does.
"""

import re
from typing import Final, NamedTuple

SCHEMES: Final = frozenset({"sb", "amqp", "amqps", "http", "https"})
_AUTHORITY: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")

NAMESPACE: Final[tuple[str, ...]] = ()


class Scope(NamedTuple):
    """`path` is as it was written, without slashes around it; `host` and `segments` are case-folded."""

    host: str
    path: str
    segments: tuple[str, ...]


def scope_of(uri: str, hosts: frozenset[str] | None = None) -> Scope | None:
    """A URI such as `sb://host:5671/queue` as a scope, or None if it is not one. The port is ignored.

    Some clients omit the scheme. Then the first segment must be one of the known hosts, or have a port: a plain name
    must not be taken for a host, because that would turn the token of one queue into a token for all.
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
    """The segments of the name of an entity; none for the namespace."""
    return tuple(name.casefold().split("/")) if name else NAMESPACE


def covers(scope: tuple[str, ...], target: tuple[str, ...]) -> bool:
    return target[: len(scope)] == scope


def home_of(segments: tuple[str, ...]) -> tuple[str, ...]:
    """The queue or topic that a path belongs to: without subscriptions, sub-queues and management nodes."""
    for at, segment in enumerate(segments):
        if segment.startswith("$") or segment == "subscriptions":
            return segments[:at]
    return segments
