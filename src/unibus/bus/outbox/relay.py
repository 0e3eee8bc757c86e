"""The relay: from the outboxes of the user's databases into the store, each row once.

One thread per bus, for all of its files. It rests until somebody says that there is something (`kick`), and looks by
itself only while a file is locked, while the store refuses for now, or while a transaction that a block has joined is
still open. What it could not do before the bus is closed stays in the table.
"""

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

from unibus.bus.outbox.outbox import Outbox, OutboxTable
from unibus.bus.outbox.relay_route import Expected, Relayed, RelayTarget, RelayWaiter, Route
from unibus.errors import BusClosed, PositionMoved, TransactionInvalid
from unibus.stores.seam.pending import CommitResult, Pending
from unibus.threads import DaemonThread, Join

log = logging.getLogger("unibus")

NAME_POSITION: Final = "outbox/store"
"""Where a store keeps what it is called in outboxes: a number that was drawn once."""


class Relay:
    """See the module. The thread begins with the first kick."""

    def __init__(self, target: RelayTarget) -> None:
        self._target = target
        self._name = ""
        self._routes: dict[str, Route] = {}
        self._taken: dict[int, int] = {}  # By connection: how many blocks it is in, one inside of the other.
        self._changed = threading.Condition()
        self._worker: threading.Thread | None = None
        self._end_s: float | None = None  # When to give up; None as long as nobody has closed the bus.
        self._closed = False

    def store_name(self) -> str:
        """What the store is called in outboxes."""
        while not self._name:
            number = self._target.position(NAME_POSITION)
            if number:
                self._name = f"{number:016x}"
                break
            try:
                self._target.advance(NAME_POSITION, 0, 1 + secrets.randbits(62), None).wait()
            except PositionMoved:
                continue  # Somebody else has drawn it.
        return self._name

    # For the blocks

    def take(self, outbox: Outbox, nested: bool) -> None:
        """A connection is in one block at a time: two tasks would commit each other's rows."""
        key = id(outbox.connection)
        with self._changed:
            if self._taken.get(key) and not nested:
                raise TransactionInvalid(
                    "the connection is inside of another block, of another task", "give each task a connection"
                )
            self._taken[key] = self._taken.get(key, 0) + 1

    def release(self, outbox: Outbox) -> None:
        key = id(outbox.connection)
        with self._changed:
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]

    def expect(self, outbox: Outbox, row_id: int, transaction: Expected) -> None:
        """Tell this transaction when the row has arrived. It is about to be committed."""
        self._route(outbox.address, outbox.open_table).expect(row_id, transaction)

    def forget(self, outbox: Outbox, row_id: int) -> None:
        """It was not committed after all. Should that be unclear, the row will be found or not."""
        self._route(outbox.address, outbox.open_table).forget(row_id)
        self.kick(outbox)

    def kick(self, outbox: Outbox) -> None:
        """There may be a new row."""
        self._wake(self._route(outbox.address, outbox.open_table))

    # For everybody

    def relay(
        self, address: str, open_table: Callable[[], OutboxTable], again: bool = False, adopt: bool = False
    ) -> Pending[Relayed]:
        """Relay what waits in a file. Answers when that is done, or with what speaks against it."""
        pending = Pending(Relayed(), CommitResult(None))
        route = self._route(address, open_table)
        route.await_all(RelayWaiter(pending, again, adopt))
        if not self._wake(route):
            route.give_up(BusClosed("the bus is closed", "open it again"))
        return pending

    def _route(self, address: str, open_table: Callable[[], OutboxTable]) -> Route:
        with self._changed:
            route = self._routes.get(address)
        if route is not None:
            return route
        name = self.store_name()
        with self._changed:
            return self._routes.setdefault(address, Route(self._target, name, open_table))

    # The thread

    def _wake(self, route: Route) -> bool:
        with self._changed:
            if self._closed or self._end_s is not None:
                return False
            route.due_s = 0.0
            if self._worker is None:
                self._worker = worker = DaemonThread(self._run, "unibus-outbox")
                try:
                    worker.start()
                except BaseException:
                    if worker.withdraw():
                        self._worker = None  # The system has no thread for us, or Ctrl-C. The next call tries again.
                    raise
            self._changed.notify_all()
            return True

    def _run(self) -> None:
        while self._end_s is None:
            for route in self._due():
                self._step(route)
        for route in list(self._routes.values()):
            while not self._step(route, True) and time.monotonic() < self._end_s:
                with self._changed:
                    self._changed.wait(0.02)
            route.close()

    def _due(self) -> list[Route]:
        """Those that have something to do; waits until there is one."""
        with self._changed:
            while self._end_s is None:
                now_s = time.monotonic()
                due = [route for route in self._routes.values() if route.due_s <= now_s]
                for route in due:
                    route.due_s = math.inf
                if due:
                    return due
                first_s = min((route.due_s for route in self._routes.values()), default=math.inf)
                self._changed.wait(None if first_s == math.inf else first_s - now_s)
        return []

    def _step(self, route: Route, last: bool = False) -> bool:
        """True if nothing is left to do for now."""
        try:
            wait_s = route.step(last)
        except Exception:
            log.exception("the relay of an outbox has failed")  # The other files have a right to theirs.
            wait_s = math.inf if last else 1.0
        with self._changed:
            route.due_s = min(route.due_s, time.monotonic() + wait_s)
        return wait_s == math.inf

    def close(self, timeout_s: float | None, join: Join = threading.Thread.join) -> None:
        """Relay what was committed before, at most for the time-out, and end the thread. `join` waits for it."""
        with self._changed:
            self._end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
            self._changed.notify_all()
            worker = self._worker
        if worker is not None and worker is not threading.current_thread():
            join(worker, timeout_s)
            if worker.is_alive() and timeout_s:
                log.warning("the bus closed before all outboxes were relayed; what is left waits in their tables")
        self._closed = True
        for route in list(self._routes.values()):
            route.give_up(BusClosed("the bus was closed", "what is left waits in the outbox"))
