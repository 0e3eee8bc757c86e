"""The outboxes of one bus: which connections it knows, the blocks over them, and the relay behind.

A kind of connection is one line in KINDS. It is found by its type, never by what it looks like: to write into a
database through something half understood would be worse than to refuse it.
"""

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from unibus.bus.outbox.outbox import Outbox
from unibus.bus.outbox.relay import Relay
from unibus.bus.outbox.relay_route import Relayed, StoreRelay
from unibus.bus.outbox.sqlite import SqliteOutbox, SqliteTable
from unibus.bus.outbox.transactions import OutboxTransaction
from unibus.bus.pubsub.exchange import Exchange
from unibus.errors import StoreUnavailable, UsageError
from unibus.stores.files.owner import is_open_here
from unibus.stores.seam.pending import Pending
from unibus.stores.seam.store import Store
from unibus.threads import Join

KINDS: Final[dict[type, Callable[[Any], Outbox]]] = {
    sqlite3.Connection: SqliteOutbox,
}
"""By the type of a connection: what makes its outbox."""


def outbox_of(connection: object) -> Outbox:
    for kind, make in KINDS.items():
        if isinstance(connection, kind):
            return make(connection)
    known = ", ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in KINDS)
    given = type(connection)
    raise UsageError(
        f"a transaction cannot use a {given.__module__}.{given.__qualname__}",
        f"it takes {known}; from a wrapper or a session take the connection of the driver",
    )


def file_of_outbox(path: object) -> str:
    """The real path of an application's database. StoreUnavailable where there is none."""
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"an outbox is named by the path of its file, not {type(path).__name__}")
    address = os.path.realpath(os.fspath(path))
    if not os.path.isfile(address):
        raise StoreUnavailable(f"there is no file {path}", "an outbox is in the database of your own rows")
    return str(address)


class Outboxes:
    def __init__(self, store: Store, exchange: Exchange) -> None:
        self._store = store
        self._exchange = exchange
        self._relay = Relay(StoreRelay(store))

    def transaction(self, connection: object, durability: object) -> OutboxTransaction:
        if durability is not None:
            raise UsageError("the commit of your connection decides how durable it is", "leave durability out")
        outbox = outbox_of(connection)
        self._check_foreign(outbox.address)
        return OutboxTransaction(self._store, self._exchange, outbox, self._relay)

    def relay(self, path: object, again: bool, adopt: bool) -> Pending[Relayed]:
        """Relay what waits in a file, also from an earlier life of the program."""
        address = file_of_outbox(path)
        self._check_foreign(address)
        return self._relay.relay(address, lambda: SqliteTable(address), again, adopt)

    def _check_foreign(self, path: str) -> None:
        """A store's file is open by a SQLite of our own, and a second library would end its locks."""
        if is_open_here(path):
            raise UsageError(
                f"{Path(path).name} is the file of a bus of this process",
                "keep your rows in a file of their own, beside it",
            )

    def close(self, timeout_s: float | None, join: Join = threading.Thread.join) -> None:
        self._relay.close(timeout_s, join)
