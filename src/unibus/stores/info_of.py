"""What a store tells of an entity: from the live object to a frozen record."""

from unibus.core.life.entity import KIND_NAMES, Entity
from unibus.stores.store import EntityInfo


def info_of(entity: Entity) -> EntityInfo:
    """In constant time, whatever the entity holds. The caller holds the store's lock."""
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
        entity.oldest_ns(),
        entity.created_ns,
        entity.updated_ns,
        entity.accessed_ns,
        entity.sent,
        entity.delivered,
        entity.completed,
        entity.abandoned,
        entity.dead_lettered,
    )
