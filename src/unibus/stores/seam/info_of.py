"""The record of an entity that a store returns: counts, sizes and times, copied from the live object."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from unibus.core.lifecycle.state.changes import Settings
from unibus.core.lifecycle.state.entity import KIND_NAMES, Entity, lock_ns_of
from unibus.counting import counted
from unibus.display import counts_text, described, html_table, quoted

_COUNTS: Final = ("active", "locked", "scheduled", "deferred", "dead")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class EntityInfo:
    """An entity as it is now. The first four counts add up to the messages in it; `dead` are in its dead-letter queue.

    `accessed_ns` is the time of the last send, receive, peek or
    declaration; 0 if there was none since the store was opened. Another time that is 0 was never recorded.

    The last six count since the store was opened and are not stored: messages that arrived (sent, copied or forwarded),
    deliveries, how messages were settled, and deliveries whose lock expired before that. A message that is removed on
    receive counts as delivered and completed.
    """

    name: str
    kind: str
    settings: Settings = field(default_factory=dict)
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

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        # Without the settings: they may hold keys.
        counts = (self.active, self.locked, self.scheduled, self.deferred, self.dead)
        waiting = counts_text(zip(counts, _COUNTS, strict=True), "empty")
        return f"{self.kind} {quoted(self.name)}, {waiting}"

    def _repr_html_(self) -> str:
        return entities_html([self])

    @property
    def created_at(self) -> datetime | None:
        return _instant(self.created_ns)

    @property
    def updated_at(self) -> datetime | None:
        return _instant(self.updated_ns)

    @property
    def accessed_at(self) -> datetime | None:
        return _instant(self.accessed_ns)


class EntityInfos(list[EntityInfo]):
    """A list that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return entities_html(self)


def entities_html(infos: Sequence[EntityInfo]) -> str:
    rows = [(each.name, each.kind, *(getattr(each, name) for name in _COUNTS), each.size_bytes) for each in infos]
    return html_table(counted(len(infos), "entity", "entities"), ("name", "kind", *_COUNTS, "bytes"), rows)


def _instant(ns: int) -> datetime | None:
    return _EPOCH + timedelta(microseconds=ns // 1_000) if ns else None


def _settings(entity: Entity) -> Settings:
    """The effective settings: a dead-letter queue has the lock duration of its entity."""
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
