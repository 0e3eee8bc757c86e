"""A user's program with a table of its own and a bus beside it, for the tests of the outbox.

`relay` answers when all that was committed is relayed: so tests need no sleep.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.unit.bus.probes import GUARD_S
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.outbox.relay_route import Relayed


class Oops(Exception):
    """What a test raises to roll back."""


class App:
    """A user's program: a table of its own, and a bus beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "app.db"
        self.connection = sqlite3.connect(self.path)
        self.connection.execute("CREATE TABLE orders (id)")
        self.bus = self.open()

    def open(self, store: object = None, **settings: Any) -> SyncMessageBus:
        return SyncMessageBus(self.folder / "bus.db" if store is None else store, **settings)

    def order(self, number: object, queue: str = "orders", **fields: Any) -> Any:
        """One transaction of the user: a row and a message about it."""
        with self.bus.transaction(connection=self.connection):
            self.connection.execute("INSERT INTO orders VALUES (?)", (number,))
            return self.bus.send(queue, number, **fields)

    def relay(self, **given: Any) -> Relayed:
        return self.bus.relay_outbox(self.path, **given)

    def orders(self) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as other:
            return [row[0] for row in other.execute("SELECT id FROM orders ORDER BY rowid")]

    def bodies(self, queue: str = "orders", bus: SyncMessageBus | None = None) -> list[Any]:
        """What the queue holds, in order of sequence; after everything was relayed."""
        self.relay()
        return held(bus or self.bus, queue)

    def rows(self) -> int:
        with closing(sqlite3.connect(self.path)) as other:
            return int(other.execute("SELECT count(*) FROM unibus_outbox").fetchone()[0])

    def close(self) -> None:
        self.bus.close(GUARD_S)
        self.connection.close()


def held(bus: SyncMessageBus, queue: str) -> list[Any]:
    if not any(info.name == queue for info in bus.entities()):
        return []
    return [message.body for message in bus.peek(queue, 1_000)]
