"""A consistent copy of a store in use, for a reader that takes long: an export.

A SQLite file needs none: it is read beside its owner, in one read transaction. Other stores cannot be read from
outside. For them the store stops while its messages are listed; later changes do not appear in the copy. The data of
messages is shared and not copied, because it never changes.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.seam.info_of import EntityInfo, info_of


class StoreCopy:
    """The part of StoreReader that an export needs, all of one moment."""

    def __init__(
        self, infos: list[EntityInfo], entries: list[StoredMessage], states: dict[str, dict[str, bytes]]
    ) -> None:
        self._infos = infos
        self._entries = entries
        self._states = states

    def moment(self) -> AbstractContextManager[None]:
        return nullcontext()

    def entities(self) -> list[EntityInfo]:
        return self._infos

    def list_messages(self) -> list[StoredMessage]:
        return self._entries

    def read_bodies(self, entries: Sequence[StoredMessage]) -> dict[StoredMessage, bytes]:
        return {entry: entry.data for entry in entries if entry.data is not None}

    def session_states(self, entity: str) -> dict[str, bytes]:
        return self._states.get(entity, {})

    def close(self) -> None:
        """Nothing is open."""


def copy_of(state: StoreState, bodies: Callable[[Iterable[StoredMessage]], dict[StoredMessage, bytes]]) -> StoreCopy:
    """The caller holds the lock `committing` and the store's lock. `bodies` reads the data that is not in memory."""
    entities = sorted(state.visible(), key=lambda each: each.name)
    entries: list[StoredMessage] = []
    for entity in entities:
        held = [entry for _, entry in sorted(entity.entries.items())]
        # Both locks are held, so no row can be deleted between the listing and this read: every message of the copy has
        # its data.
        found = bodies([entry for entry in held if entry.data is None])
        entries += [_copied(entry, entry.data if entry.data is not None else found.get(entry)) for entry in held]
    states = {
        entity.name: {session.id: session.state for session in entity.sessions.values() if session.state is not None}
        for entity in entities
    }
    return StoreCopy([info_of(entity) for entity in entities], entries, states)


def _copied(entry: StoredMessage, data: bytes | None) -> StoredMessage:
    """The fields that an export writes. The copy is in no index, so it needs no others."""
    copy = StoredMessage(entry.entity, entry.sequence, entry.who, entry.priority, data)
    copy.state = entry.state
    copy.delivery_count = entry.delivery_count
    copy.expires_ns = entry.expires_ns
    copy.due_ns = entry.due_ns
    copy.enqueued_ns = entry.enqueued_ns
    copy.first_delivered_ns = entry.first_delivered_ns
    copy.overlay = entry.overlay
    return copy
