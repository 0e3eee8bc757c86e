"""A store of another process for a query: read through a StoreReader."""

from collections.abc import Collection, Sequence

from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.stores.seam.pending import Pending, resolved
from unibus.stores.seam.store import EntityInfo, StoreHealth
from unibus.stores.seam.store_view import StoreReader


class OutsideStore:
    """The part of the Store protocol that stores/query uses."""

    def __init__(self, reader: StoreReader, url: str) -> None:
        self.url = url
        self._reader = reader

    @property
    def history(self) -> "OutsideStore":
        return self

    def entities(self) -> Pending[list[EntityInfo]]:
        return resolved(self._reader.entities())

    def list_messages(self, entity: str | None = None) -> list[StoredMessage]:
        self._reader.entities()
        return [entry for entry in self._reader.list_messages() if entity is None or entry.entity.name == entity]

    def read_bodies(self, entries: Sequence[StoredMessage]) -> dict[StoredMessage, bytes]:
        return self._reader.read_bodies(entries)

    def events_after(self, seq: int, limit: int = 1_000, kinds: Collection[str] = ()) -> tuple[list[Event], int]:
        return self._reader.events_after(seq, limit, kinds)

    def events_of(self, message_id: str) -> list[Event]:
        return self._reader.events_of(message_id)

    def health(self) -> StoreHealth:
        return StoreHealth(True, self.url, "", last_seq=self._reader.last_seq())
