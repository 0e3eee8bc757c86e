"""The relay: moves rows from the outboxes of the user's databases into the store, each exactly once.

    block: expect(row) ─▶ commit ─▶ kick ──┐
    bus.relay(path) ─▶ await_all ──────────┼──▶ due_s = 0 ─▶ the thread: Route.step ─▶ next due_s
    a timer: locked file, joined block ────┘

One thread per bus serves all outbox files; each file has a `Route` (relay_route.py). The thread sleeps until a commit
notifies it (`kick`). It polls a file only while the file is locked, while the store refuses a batch for now, or while a
transaction that a block has joined is still open. Rows that are not relayed when the bus closes stay in their table.
"""

import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

from unibus.bus.outbox.outbox import Outbox, OutboxTable
from unibus.bus.outbox.relay_route import Expected, Relayed, RelayTarget, RelayWaiter, Route
from unibus.errors import BusClosed, PositionMoved, TransactionInvalid
from unibus.safe_log import SafeLogger
from unibus.stores.seam.pending import CommitResult, Pending
from unibus.threads import DaemonThread, Join

log = SafeLogger("unibus")

NAME_POSITION: Final = "outbox/store"
"""The position in which a store keeps its own name in outboxes: a random number, drawn once per store."""


class Relay:
    """See the module. The thread starts with the first kick.

    `_changed` guards the routes, the blocks per connection and the due times.
    """

    def __init__(self, target: RelayTarget) -> None:
        self._target = target
        self._name = ""
        self._routes: dict[str, Route] = {}
        self._blocks: dict[int, int] = {}  # By id of the connection: how many nested blocks use it.
        self._changed = threading.Condition()
        self._worker: threading.Thread | None = None
        self._end_s: float | None = None  # The deadline for the last rows; None until the bus is closed.
        self._closed = False

    def store_name(self) -> str:
        """The name of the store in outboxes. The first caller draws it; the position makes the draw atomic."""
        # Durable before it is used: a row must never carry a name that a crash takes from the store again.
        while not self._name:
            number = self._target.position(NAME_POSITION)
            if number:
                self._name = f"{number:016x}"
                break
            try:
                self._target.advance(NAME_POSITION, 0, 1 + secrets.randbits(62), None).wait()
            except PositionMoved:
                continue  # Another thread or process has drawn it first: read that one.
        return self._name

    # For the blocks

    def take(self, outbox: Outbox, nested: bool) -> None:
        """Reserve the connection for a block. Two tasks in blocks over one connection would commit each other's rows,
        so only nested blocks share it."""
        key = id(outbox.connection)
        with self._changed:
            if self._blocks.get(key) and not nested:
                raise TransactionInvalid(
                    "another task has a transaction open over this connection", "give each task its own connection"
                )
            self._blocks[key] = self._blocks.get(key, 0) + 1

    def release(self, outbox: Outbox) -> None:
        key = id(outbox.connection)
        with self._changed:
            self._blocks[key] -= 1
            if not self._blocks[key]:
                del self._blocks[key]

    def expect(self, outbox: Outbox, row_id: int, transaction: Expected) -> None:
        """Notify this transaction when its row is stored. Called before the commit."""
        self._route(outbox.address, outbox.open_table).expect(row_id, transaction)

    def forget(self, outbox: Outbox, row_id: int) -> None:
        """The commit failed: notify the transaction of nothing. If the row was committed in spite of the error, the
        relay finds it, because of the kick."""
        # The order matters: a kick first could let the relay notify a transaction whose block raises right now.
        self._route(outbox.address, outbox.open_table).forget(row_id)
        self.kick(outbox)

    def kick(self, outbox: Outbox) -> None:
        """There may be a new row."""
        self._wake(self._route(outbox.address, outbox.open_table))

    # For `bus.relay`

    def relay(
        self, address: str, open_table: Callable[[], OutboxTable], again: bool = False, adopt: bool = False
    ) -> Pending[Relayed]:
        """Relay all rows of a file. The result is ready when that is done, or fails with the error that prevents it."""
        pending = Pending(Relayed(), CommitResult(None))
        route = self._route(address, open_table)
        route.await_all(RelayWaiter(pending, again, adopt))
        if not self._wake(route):
            route.give_up(BusClosed("the bus is closed", "open a new bus"))
        return pending

    def _route(self, address: str, open_table: Callable[[], OutboxTable]) -> Route:
        with self._changed:
            route = self._routes.get(address)
        if route is not None:
            return route
        # Without `_changed`: drawing the name waits for a write. Two threads may get here; `setdefault` keeps one
        # route.
        name = self.store_name()
        with self._changed:
            return self._routes.setdefault(address, Route(self._target, name, open_table))

    # The thread

    def _wake(self, route: Route) -> bool:
        with self._changed:
            if self._closed or self._end_s is not None:
                return False
            # Set under `_changed`, which `_due` holds from its look to its wait: no kick is missed.
            route.due_s = 0.0
            if self._worker is None:
                # Remembered before start(): Ctrl-C may interrupt start() after the thread has begun to run
                # (unibus/threads.py).
                self._worker = worker = DaemonThread(self._run, "unibus-outbox")
                try:
                    worker.start()
                except BaseException:
                    if worker.withdraw():
                        self._worker = None  # No thread could be started, or Ctrl-C came: the next call tries again.
                    raise
            self._changed.notify_all()
            return True

    def _run(self) -> None:
        while self._end_s is None:
            for route in self._due():
                self._step(route)
        # The bus closes: relay what was committed before, until the deadline of `close`.
        for route in list(self._routes.values()):
            # Only a locked file is tried again. All else stays in its table: rows are durable there, and the next start
            # of a relay finds them.
            while not self._step(route, True) and time.monotonic() < self._end_s:
                with self._changed:
                    self._changed.wait(0.02)
            route.close()

    def _due(self) -> list[Route]:
        """The routes whose due time has passed; waits until there is one."""
        with self._changed:
            while self._end_s is None:
                now_s = time.monotonic()
                due = [route for route in self._routes.values() if route.due_s <= now_s]
                for route in due:
                    # Before the step: a kick during the step sets it to 0 again, and is not overwritten.
                    route.due_s = math.inf
                if due:
                    return due
                first_s = min((route.due_s for route in self._routes.values()), default=math.inf)
                self._changed.wait(None if first_s == math.inf else first_s - now_s)
        return []

    def _step(self, route: Route, last: bool = False) -> bool:
        """Run one step of a route. True if it has nothing more to do for now."""
        try:
            wait_s = route.step(last)
        except Exception:
            log.exception("the relay of an outbox has failed")  # The thread continues with the other files.
            wait_s = math.inf if last else 1.0
        # min: a kick during the step has set 0, and must not be replaced by a later time.
        with self._changed:
            route.due_s = min(route.due_s, time.monotonic() + wait_s)
        return wait_s == math.inf

    def close(self, timeout_s: float | None, join: Join = threading.Thread.join) -> None:
        """Relay the rows that were committed before, for at most the timeout, and end the thread."""
        with self._changed:
            self._end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
            self._changed.notify_all()
            worker = self._worker
        if worker is not None and worker is not threading.current_thread():
            join(worker, timeout_s)
            if worker.is_alive() and timeout_s:
                log.warning("the bus closed before all outboxes were relayed; the remaining rows stay in their tables")
        # After the thread has ended or the time is over: waiters that joined meanwhile would wait for ever, so they
        # fail here.
        self._closed = True
        for route in list(self._routes.values()):
            route.give_up(BusClosed("the bus was closed", "the remaining rows stay in the outbox: relay them again"))
