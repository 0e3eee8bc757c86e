"""A message in one entity, and a session, as the model holds them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

SECOND = 1_000_000_000

Value: TypeAlias = str | int | None
"""What a property can be here. None is NULL."""


@dataclass
class ModelMessage:
    """One message in one box. `until_ns` is when it becomes visible or when its lock ends.

    `headers` is never changed, only replaced: copies share it. `tie` is the instant of several deadlines, where the
    message was stored by one of them: which of them comes first is not promised. 0: it has its place.
    `key` is the sender's dedup key. A message is `fresh`, and its key at hand, until it is stored. `way` are the boxes
    that it has passed since.
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
    way: tuple[str, ...] = ()


@dataclass
class Held:
    """A session: the token of its receiver, until when, and its state."""

    token: bytes = b""
    until_ns: int = 0
    state: bytes | None = None
