"""A consistent copy of a store in use, for a reader that takes long: an export.

A SQLite file needs none: it is read beside its owner, in one read transaction. Other stores cannot be read from
outside. For them the store stops while its messages are listed; later changes do not appear in the copy. The data of
messages is shared and not copied, because it never changes.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.seam.info_of import EntityInfo, info_of
from unibus.stores.seam.message_record import MessageKey, MessageRecord, freeze


@dataclass(frozen=True)
class StoreCopy:
    """`messages` are by the name of their entity, in the order of their sequences."""

    entities: list[EntityInfo]
    messages: dict[str, list[MessageRecord]]
    bodies: dict[MessageKey, bytes]
    session_states: dict[str, dict[str, bytes]]

    def page(self, entity: str, from_sequence: int, count: int) -> list[MessageRecord]:
        messages = self.messages.get(entity, [])
        start = bisect_left(messages, from_sequence, key=lambda record: record.sequence)
        return messages[start : start + count]


def copy_of(state: StoreState, bodies: Callable[[Iterable[StoredMessage]], dict[StoredMessage, bytes]]) -> StoreCopy:
    """The caller holds the lock `committing` and the store's lock. `bodies` reads the data that is not in memory."""
    copy = StoreCopy([], {}, {}, {})
    for entity in sorted(state.visible(), key=lambda each: each.name):
        held = [entry for _, entry in sorted(entity.entries.items())]
        # Both locks are held, so no row can be deleted between the listing and this read: every message of the copy has
        # its data.
        found = bodies([entry for entry in held if entry.data is None])
        copy.entities.append(info_of(entity))
        copy.messages[entity.name] = [freeze(entry) for entry in held]
        for entry in held:
            data = entry.data if entry.data is not None else found.get(entry)
            if data is not None:
                copy.bodies[entity.name, entry.sequence] = data
        copy.session_states[entity.name] = {
            session.id: session.state for session in entity.sessions.values() if session.state is not None
        }
    return copy
