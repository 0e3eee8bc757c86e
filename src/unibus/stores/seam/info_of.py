"""What a store tells of an entity: from the live object to a frozen record."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from unibus.core.lifecycle.state.changes import Settings
from unibus.core.lifecycle.state.entity import KIND_NAMES, Entity, lock_ns_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class EntityInfo:
    """An entity as it is now. The counts add up to the messages that it holds; `dead` are those of its sub-queue.

    Settings are not shown: they may hold keys. `accessed_ns` is when somebody last sent to it, received from it, looked
    into it or set it up; 0 as long as nobody has since the store was opened. 0 elsewhere: nobody wrote it down.

    The last six count since the store was opened, and are not stored: messages that arrived (sent, copied or passed
    on), deliveries, how messages were settled, and deliveries whose lock ended before that. A message that is removed
    when it is received is delivered and completed.
    """

    name: str
    kind: str
    settings: Settings = field(default_factory=dict, repr=False)
    active: int = 0
    locked: int = 0
    scheduled: int = 0
    deferred: int = 0
    dead: int = 0
    size_bytes: int = 0
    last_sequence: int = 0
    oldest_ns: int = 0
    created_ns: int = 0
    updated_ns: int = 0
    accessed_ns: int = field(default=0, compare=False)
    sent: int = field(default=0, compare=False)
    delivered: int = field(default=0, compare=False)
    completed: int = field(default=0, compare=False)
    abandoned: int = field(default=0, compare=False)
    dead_lettered: int = field(default=0, compare=False)
    locks_expired: int = field(default=0, compare=False)

    @property
    def created_at(self) -> datetime | None:
        return _instant(self.created_ns)

    @property
    def updated_at(self) -> datetime | None:
        return _instant(self.updated_ns)

    @property
    def accessed_at(self) -> datetime | None:
        return _instant(self.accessed_ns)


def _instant(ns: int) -> datetime | None:
    return _EPOCH + timedelta(microseconds=ns // 1_000) if ns else None


def _settings(entity: Entity) -> Settings:
    """As they are in force: the lock duration of a dead-letter queue is that of its entity."""
    settings = entity.settings.as_dict()
    if entity.owner is not None:
        settings["lock_duration"] = int(lock_ns_of(entity)) / 1e9
    return settings


def info_of(entity: Entity) -> EntityInfo:
    """In constant time, whatever the entity holds. The caller holds the store's lock."""
    return EntityInfo(
        name=entity.name,
        kind=KIND_NAMES[entity.kind],
        settings=_settings(entity),
        active=entity.active,
        locked=entity.locked,
        scheduled=entity.scheduled,
        deferred=entity.deferred,
        dead=0 if entity.dead is None else len(entity.dead.entries),
        size_bytes=entity.size_bytes,
        last_sequence=entity.sequence,
        oldest_ns=entity.oldest_ns(),
        created_ns=entity.created_ns,
        updated_ns=entity.updated_ns,
        accessed_ns=entity.accessed_ns,
        sent=entity.sent,
        delivered=entity.delivered,
        completed=entity.completed,
        abandoned=entity.abandoned,
        dead_lettered=entity.dead_lettered,
        locks_expired=entity.locks_expired,
    )
