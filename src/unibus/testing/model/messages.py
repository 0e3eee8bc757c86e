"""A message in one entity, and a session, as the model holds them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

SECOND = 1_000_000_000

Value: TypeAlias = str | int | None
"""What a property can be here. None is NULL."""


@dataclass
class ModelMessage:
    """One message in one queue. `until_ns` is when it becomes visible or when its lock ends.

    `headers` is never changed, only replaced: copies share it. `tie` is not 0 if one of several deadlines of the same
    instant stored the message: a store may run these in any order, so the sequence is not determined. `key` is the
    sender's dedup key. A message is `fresh` until it is stored for the first time. `path` are the entities that it has
    passed since then.
    """

    text: str
    priority: int
    session: str | None
    sequence: int
    state: str = "active"
    count: int = 0
    expires_ns: int = 0
    until_ns: int = 0
    token: bytes = b""
    deferred: bool = False
    delayed: bool = False
    hops: int = 0
    headers: Mapping[str, Value] = field(default_factory=dict)
    correlation: str | None = None
    tie: int = 0
    id: str = ""
    key: str | None = None
    fresh: bool = False
    path: tuple[str, ...] = ()


@dataclass
class Held:
    """A session: the token of its receiver, when that lock ends, and the session's state."""

    token: bytes = b""
    until_ns: int = 0
    state: bytes | None = None
