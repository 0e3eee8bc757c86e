"""Reads the data of messages that are not in memory: from a row of the snapshot, or from a record of the log.

`home_entity` of a message says which: not 0 is the row (home_entity, home_sequence), 0 is the change `home_sequence`.
"""

import zlib
from typing import Final

from unibus.core.lifecycle.state.changes import Change, Passed, Sent
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.stores.sql.rows import SEQUENCE_BITS, changes_of
from unibus.stores.sql.tables import SqlTables, damaged

_CACHED_GROUPS: Final = 8


class SqlBodies:
    """One thread at a time uses it."""

    def __init__(self, tables: SqlTables) -> None:
        self._tables = tables
        self._groups: dict[int, list[Change]] = {}

    def of(self, entry: StoredMessage) -> bytes:
        return self._saved(entry) if entry.home_entity else self._logged(entry)

    def clear_cache(self) -> None:
        """Drop the cached groups: some of them were deleted from the log."""
        self._groups.clear()

    def _saved(self, entry: StoredMessage) -> bytes:
        key = entry.home_entity << SEQUENCE_BITS | entry.home_sequence
        for data, crc in self._tables.execute(self._tables.sql.body, (key,)):
            if isinstance(data, bytes) and zlib.crc32(data) == crc:
                return data
        raise damaged(self._tables.name, f"the data of {entry.entity.name!r} #{entry.sequence}")

    def _logged(self, entry: StoredMessage) -> bytes:
        """From the group of its record. Messages of one group are often received together, so the last groups are
        cached."""
        wanted = entry.home_sequence
        for first, changes in self._groups.items():
            if first <= wanted < first + len(changes):
                return self._data_of(entry, changes[wanted - first])
        for row in self._tables.execute(self._tables.sql.group_at, (wanted,)):
            changes = changes_of(self._tables.name, *row)
            if wanted <= row[1]:
                # The oldest one: a dict keeps the order of insertion.
                while len(self._groups) >= _CACHED_GROUPS:
                    del self._groups[next(iter(self._groups))]
                self._groups[row[0]] = changes
                return self._data_of(entry, changes[wanted - row[0]])
        raise damaged(
            self._tables.name, f"the data of {entry.entity.name!r} #{entry.sequence}: the log has no change {wanted}"
        )

    def _data_of(self, entry: StoredMessage, change: Change) -> bytes:
        # The id is compared: with a wrong home a receiver would get another message's data, without any error.
        if isinstance(change, (Sent, Passed)) and change.who.message_id == entry.who.message_id:
            return change.data
        raise damaged(self._tables.name, f"the data of {entry.entity.name!r} #{entry.sequence}")
