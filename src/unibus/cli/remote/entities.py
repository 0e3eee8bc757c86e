"""Entities of a server: lists in pages, and the rows of `unibus top` from server-sent events.

A thread reads the events and keeps the latest row of each entity. `look` returns these rows, without a request.
"""

import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec

from unibus.bus.management.settings.entities import DEAD_LETTERS, KINDS, EntityRecord
from unibus.cli.connection.entity_rows import TopRow
from unibus.client.answers import record_of
from unibus.client.client import Client
from unibus.client.events import EventStream
from unibus.stores.seam.info_of import EntityInfo

if TYPE_CHECKING:
    from unibus.client.events import ServerEvent

PAGE: Final = 1_000
FIRST_ROWS_S: Final = 30.0
_RATES: Final = ("in_per_s", "out_per_s")


class RemoteEntityPage(msgspec.Struct, frozen=True):
    entities: list[EntityRecord]
    next: str | None = None


class EntityChanges(msgspec.Struct, frozen=True):
    rows: list[EntityRecord]
    removed: list[str]


def all_entities(client: Client) -> list[EntityInfo]:
    """Sorted by name, as a store lists them."""
    return sorted([_info(each) for each in _records(client, (*KINDS, DEAD_LETTERS), True)], key=lambda info: info.name)


def _records(client: Client, kinds: tuple[str, ...], settings: bool) -> list[EntityRecord]:
    found: list[EntityRecord] = []
    after: str | None = None
    while True:
        query = {"kind": kinds, "top": PAGE, "after": after, "settings": "1" if settings else None}
        page = client.get("entities", RemoteEntityPage, query)
        found += page.entities
        if page.next is None:
            return found
        after = page.next


def _info(record: EntityRecord) -> EntityInfo:
    given = msgspec.structs.asdict(record)
    settings = given.pop("settings")
    for name in _RATES:
        del given[name]
    return EntityInfo(**given, settings={} if settings is msgspec.UNSET else settings)


class RemoteWatch:
    """`look` returns the latest rows; the first call waits for them."""

    def __init__(self, client: Client, once: bool) -> None:
        self._client = client
        self._once = once
        self._rows: dict[str, EntityRecord] = {}
        self._failure: BaseException | None = None
        self._has_begun = threading.Event()
        self._is_listening = False

    def look(self) -> list[TopRow]:
        if self._once:
            return [_row(each, time.time_ns()) for each in _records(self._client, KINDS, False)]
        if not self._is_listening:
            self._is_listening = True
            threading.Thread(target=self._listen, name="unibus-top", daemon=True).start()
        self._has_begun.wait(FIRST_ROWS_S)
        if self._failure is not None:
            raise self._failure
        return [_row(each, time.time_ns()) for each in self._rows.values()]

    def _listen(self) -> None:
        try:
            for event in EventStream(self._client.twin(), "entities/live"):
                self._take(event)
        except BaseException as error:  # The next `look` raises it in the thread of the command.
            self._failure = error
            self._has_begun.set()

    def _take(self, event: "ServerEvent") -> None:
        changes = record_of(event.data, EntityChanges)
        rows = {} if event.kind == "snapshot" else dict(self._rows)
        for name in changes.removed:
            rows.pop(name, None)
        rows.update({each.name: each for each in changes.rows})
        self._rows = rows  # One assignment: another thread reads it.
        self._has_begun.set()


def _row(record: EntityRecord, now_ns: int) -> TopRow:
    oldest_s = max(0.0, (now_ns - record.oldest_ns) / 1e9) if record.oldest_ns else None
    counts = (record.active, record.locked, record.scheduled, record.deferred, record.dead)
    return TopRow(record.name, record.kind, *counts, oldest_s, record.in_per_s, record.out_per_s)
