"""The outboxes of one bus: the supported types of connections, the transactions over them, and the relay.

KINDS has one entry for each type of connection. A connection is recognised by its type, never by its methods: a
wrapper that only looks like a connection could break the atomicity of the commit, so it is refused.
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
"""The class of the outbox for each type of connection."""


def outbox_of(connection: object) -> Outbox:
    for kind, make in KINDS.items():
        if isinstance(connection, kind):
            return make(connection)
    known = ", ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in KINDS)
    given = type(connection)
    raise UsageError(
        f"a transaction cannot use a connection of type {given.__module__}.{given.__qualname__}",
        f"pass a {known}; a wrapper or an ORM session holds one as its driver connection",
    )


def file_of_outbox(path: object) -> str:
    """The real path of an application's database. StoreUnavailable if the file does not exist."""
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"an outbox is named by the path of its file, not by a {type(path).__name__}")
    address = os.path.realpath(os.fspath(path))
    if not os.path.isfile(address):
        raise StoreUnavailable(f"there is no file {path}", "name the database of your application: it holds the outbox")
    return str(address)


class Outboxes:
    """Makes the transactions over the user's connections, and owns the relay of the bus."""

    def __init__(self, store: Store, exchange: Exchange) -> None:
        self._store = store
        self._exchange = exchange
        self._relay = Relay(StoreRelay(store))

    def transaction(self, connection: object, durability: object) -> OutboxTransaction:
        if durability is not None:
            raise UsageError(
                "durability cannot be set for a transaction over a connection",
                "leave it out: the commit of the connection decides",
            )
        outbox = outbox_of(connection)
        self._check_foreign(outbox.address)  # Before anything is written: see there.
        return OutboxTransaction(self._store, self._exchange, outbox, self._relay)

    def relay(self, path: object, again: bool, adopt: bool) -> Pending[Relayed]:
        """Relay the rows of a file, also those that an earlier process left there."""
        address = file_of_outbox(path)
        self._check_foreign(address)
        return self._relay.relay(address, lambda: SqliteTable(address), again, adopt)

    def _check_foreign(self, path: str) -> None:
        """Refuse the file of a store. This process has it open with another copy of the SQLite library, and POSIX
        drops all locks of a process on a file when one of its descriptors is closed, so two copies can corrupt it."""
        if is_open_here(path):
            raise UsageError(
                f"{Path(path).name} is the store of a bus in this process and cannot have an outbox",
                "keep the rows of your application in a file of their own",
            )

    def close(self, timeout_s: float | None, join: Join = threading.Thread.join) -> None:
        self._relay.close(timeout_s, join)
