"""What a store tells of an entity: from the live object to a frozen record."""

from unibus.core.life.entity import KIND_NAMES, Entity
from unibus.stores.store import EntityInfo


def info_of(entity: Entity) -> EntityInfo:
    # A message that is only scheduled has not been enqueued yet.
    oldest_ns = next((entry.enqueued_ns for entry in entity.entries.values() if entry.enqueued_ns), 0)
    return EntityInfo(
        entity.name,
        KIND_NAMES[entity.kind],
        entity.settings.as_dict(),
        entity.active,
        entity.locked,
        entity.scheduled,
        entity.deferred,
        0 if entity.dead is None else len(entity.dead.entries),
        entity.size_bytes,
        entity.sequence,
        oldest_ns,
        entity.created_ns,
        entity.updated_ns,
        entity.accessed_ns,
    )
