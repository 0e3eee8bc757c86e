"""The route of one outbox into the store.

A position of the store advances in the batch that holds the messages of a row, and therefore:

    crash before the batch is durable     the position is before the row: the row is relayed after the restart
    crash after that                      the position is past the row: the row is only deleted
    the store refuses for now             the row waits, and later rows wait behind it: the order is kept
    the store will never accept it        the row is set aside, an error is logged, and later rows are relayed

Only the relay's thread runs steps. The methods that other threads may call are the first ones of `Route`.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from unibus.bus.outbox.outbox import OutboxRow, OutboxTable, position_name, unpacked
from unibus.core.lifecycle.commands import Advance
from unibus.errors import BusClosed, BusError, DecodeError, PositionMoved, StoreBusy, StoreFailed, StoreUnavailable
from unibus.safe_log import SafeLogger
from unibus.stores.seam.pending import Pending
from unibus.stores.seam.store import Store

log = SafeLogger("unibus")

ROWS: Final = 200
"""Rows that are read at once. Their batches share one group commit of the store."""

RETRY_S: Final = 0.05
RETRY_S_MAX: Final = 1.0
LOCKED_S_MAX: Final = 0.2
"""The longest pause between two attempts on a locked file: a file under constant writes is rarely unlocked."""

PATIENCE_S: Final = 5.0
"""A lock is reported only after this time: it is the default busy timeout of the sqlite3 module."""

TIDY_S: Final = 0.25
TIDY_ROWS: Final = 500
"""Relayed rows are deleted together, after TIDY_S seconds or TIDY_ROWS rows: a deletion costs a commit in the user's
file."""


@dataclass
class Relayed:
    """The result of a relay: `batches` were stored now, `set_aside` rows were refused by the store, `elsewhere` rows
    are for other stores."""

    batches: int = 0
    set_aside: int = 0
    elsewhere: int = 0


@dataclass(frozen=True, eq=False)
class RelayWaiter:
    """A call of `bus.relay` that waits for its result."""

    pending: Pending[Relayed]
    again: bool
    adopt: bool

    def answer(self, relayed: Relayed) -> None:
        self.pending.value.__dict__.update(relayed.__dict__)
        self._decide(None)

    def fail(self, error: BusError) -> None:
        # A new error for each waiter: one exception object raised in two threads would mix their tracebacks.
        self._decide(lambda: type(error)(error.what, error.hint))

    def _decide(self, failure: Callable[[], BaseException] | None) -> None:
        if self.pending.outcome is not None and not self.pending.outcome.done:
            self.pending.outcome.decide(failure)


class Expected(Protocol):
    """A transaction whose row is not in the store yet."""

    def is_joined(self) -> bool: ...

    def is_undecided(self) -> bool: ...

    def stored(self, results: list[object]) -> None: ...

    def was_lost(self, state: str) -> None: ...


class RelayTarget(Protocol):
    """Where outboxes are relayed to: a store that is open in this process, or a server."""

    def has_stopped(self) -> bool:
        """Whether no row can be stored any more. Asked after StoreFailed."""

    def position(self, name: str) -> int: ...

    def advance(self, name: str, before: int, to: int, row: OutboxRow | None) -> Pending[list[object]]:
        """Store the messages of a row and advance the position, in one batch. PositionMoved, and nothing is stored, if
        the position is not at `before`. Without a row only the position advances."""


class StoreRelay:
    """A store that is open in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def has_stopped(self) -> bool:
        return self._store.health().stopped

    def position(self, name: str) -> int:
        return self._store.position(name).wait()

    def advance(self, name: str, before: int, to: int, row: OutboxRow | None) -> Pending[list[object]]:
        sends = [] if row is None else unpacked(row)
        for send in sends:
            send.raises = False  # The sender's call has returned: an error for a duplicate would set the row aside.
        return self._store.apply([*sends, Advance(name, before, to)])


class Route:
    """The relay of one outbox file. `due_s` is the time of the next step, and is guarded by the relay's lock."""

    def __init__(self, target: RelayTarget, name: str, open_table: Callable[[], OutboxTable]) -> None:
        # `_expected` is shared with the threads of the blocks, `_waiting` with callers of `relay` (under `_lock`). All
        # other fields belong to the relay's thread.
        self.due_s = math.inf
        self._target = target
        self._name = name
        self._open_table = open_table
        self._expected: dict[int, Expected] = {}
        self._lock = threading.Lock()  # For `_waiting`.
        self._waiting: list[RelayWaiter] = []
        self._table: OutboxTable | None = None
        self._after = 0  # The id of the last row that is done; the row itself may still be in the table.
        self._relayed: dict[str, int] = {}  # By source: rows up to this id can be deleted.
        self._undeleted = 0
        self._delete_at_s = math.inf
        self._retry_s = RETRY_S
        self._locked_since_s: float | None = None
        self._poll_s = RETRY_S
        self._last_warning = ""

    # From any thread. Each access to `_expected` is one dict operation, which is atomic under the GIL.

    def expect(self, row_id: int, transaction: Expected) -> None:
        before = self._expected.get(row_id)
        self._expected[row_id] = transaction
        if before is not None:
            before.was_lost("rolled back")  # AUTOINCREMENT gives an id twice only after a rollback of the first.

    def forget(self, row_id: int) -> None:
        self._expected.pop(row_id, None)

    def await_all(self, waiting: RelayWaiter) -> None:
        with self._lock:
            self._waiting.append(waiting)

    def give_up(self, error: BusError) -> None:
        """Fail all waiters with the error."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.fail(error)

    # The step

    def step(self, last: bool = False) -> float:
        """Relay all present rows. Gives the pause before the next step in seconds; infinity if nothing is left to do.

        The last step, at the close of the bus, also deletes the relayed rows. A locked file is the only reason to
        repeat it.
        """
        with self._lock:
            waiting = list(self._waiting)
        # Taken before the rows are read: a transaction that ended before and whose row is not found was rolled back.
        ended = [(row_id, each) for row_id, each in list(self._expected.items()) if _has_ended(each)]
        try:
            if any(each.again or each.adopt for each in waiting):
                self._readdress(waiting)
            # The order: rows are stored, then missing ones are reported, then rows are deleted. A crash between any two
            # repeats the rest, and the position prevents a second relay.
            count = self._relay_all()
            self._report_rolled_back(ended)
            self._delete_relayed(bool(waiting) or last)
            self._answer(waiting, count)
        except BusError as error:
            if isinstance(error, BusClosed) or (isinstance(error, StoreFailed) and self._target.has_stopped()):
                self.give_up(error)  # After a reopen the positions of the store show which rows it has.
                return math.inf
            # StoreBusy, a full store, a damaged file, an unknown outcome: the rows stay where they are, in their order,
            # and are tried again later. A row that was stored is not stored again: its position has moved.
            wait_s = self._postpone(error)
            return wait_s if not last or isinstance(error, StoreBusy) else math.inf
        self._retry_s, self._locked_since_s, self._last_warning = RETRY_S, None, ""
        return math.inf if last else min(self._deletion_pause_s(), self._poll_pause_s())

    def _report_rolled_back(self, ended: list[tuple[int, Expected]]) -> None:
        """Transactions that had ended before the rows were read, and whose rows were not among them."""
        for row_id, transaction in ended:
            if self._expected.get(row_id) is transaction:
                self.forget(row_id)
                transaction.was_lost("rolled back")

    def _postpone(self, error: BusError) -> float:
        """The pause before the next attempt, with exponential backoff. Waiters fail with the error; a lock is an error
        only after PATIENCE_S."""
        now_s = time.monotonic()
        if not isinstance(error, StoreBusy):
            # The connection may be the problem: a moved file, a disk that was mounted again. The next step opens a new
            # one.
            self._close_table()
            self.give_up(error)
            self._warn_once(error)
        elif self._locked_since_s is None:
            self._locked_since_s = now_s
        elif now_s - self._locked_since_s > PATIENCE_S:
            self.give_up(error)
            self._warn_once(error)
        longest_s = LOCKED_S_MAX if isinstance(error, StoreBusy) else RETRY_S_MAX
        wait_s, self._retry_s = min(self._retry_s, longest_s), min(2 * self._retry_s, RETRY_S_MAX)
        return wait_s

    def _warn_once(self, error: BusError) -> None:
        if error.what != self._last_warning:
            self._last_warning = error.what
            log.warning("an outbox cannot be relayed for now: %s", error)

    def _poll_pause_s(self) -> float:
        """The pause before the next poll for a joined transaction: the user's code commits it, and no kick follows."""
        if not any(each.is_joined() for each in list(self._expected.values())):
            self._poll_s = RETRY_S
            return math.inf
        wait_s, self._poll_s = self._poll_s, min(2 * self._poll_s, RETRY_S_MAX)
        return wait_s

    def _readdress(self, waiting: list[RelayWaiter]) -> None:
        self._opened().readdress(self._name, any(each.again for each in waiting), any(each.adopt for each in waiting))
        # Rows with small ids are eligible again. Those that the store has already are recognised by their position.
        self._after = 0

    def _answer(self, waiting: list[RelayWaiter], count: int) -> None:
        if waiting:
            set_aside, elsewhere = self._opened().left(self._name)
            with self._lock:
                self._waiting = [each for each in self._waiting if each not in waiting]
            for each in waiting:
                each.answer(Relayed(count, set_aside, elsewhere))

    # Relaying

    def _relay_all(self) -> int:
        if any(row_id <= self._after for row_id in list(self._expected)):
            self._after = 0  # Ids have gone back: the file was restored from an earlier state.
        count = 0
        # `read` returns rows above `_after` that are not set aside, and each pass moves `_after` or sets rows aside:
        # the loop ends, although relayed rows are deleted later.
        while rows := self._opened().read(self._name, self._after, ROWS):
            count += self._relay(rows)
        return count

    def _relay(self, rows: list[OutboxRow]) -> int:
        """Apply all rows to the store, then wait for all commits: the store writes them in one group commit."""
        in_flight: list[tuple[OutboxRow, Pending[list[object]]]] = []
        try:
            for row in rows:
                pending = self._apply(row)
                if pending is not None:
                    in_flight.append((row, pending))
        finally:
            # Also after an error: the rows before the refused one are applied, and must be counted as relayed.
            for row, pending in in_flight:
                self._finish(row, pending.wait())
        return len(in_flight)

    def _apply(self, row: OutboxRow) -> Pending[list[object]] | None:
        """Apply one row. None if it was relayed before, or is set aside now."""
        name = position_name(row.source)
        # Compare and advance in one batch of the store (`before` is checked there): of two relays of one file exactly
        # one stores the row, and the other reads the new position.
        while row.id > (position := self._target.position(name)):
            try:
                pending = self._target.advance(name, position, row.id, row)
                if not pending.is_accepted:
                    pending.wait()  # A refusal arrives with the answer, and the next row depends on it.
                return pending
            except PositionMoved:
                continue  # Another relay of the same file was faster: read the position again.
            except (BusClosed, StoreFailed, StoreUnavailable):
                raise
            except BusError as error:
                if error.retryable:
                    raise
                self._set_aside(row, error)
                return None
        self._finish(row, [])  # An earlier process relayed it, or its response was lost.
        return None

    def _set_aside(self, row: OutboxRow, error: BusError) -> None:
        what = "it is damaged" if isinstance(error, DecodeError) else "the store refuses it"
        # In the user's file first. After a crash in between the row is refused and set aside again: nothing is lost.
        self._opened().set_aside(row.id, str(error))
        log.error("row %d of an outbox is set aside because %s: %s", row.id, what, error)
        transaction = self._expected.pop(row.id, None)
        if transaction is not None:
            transaction.was_lost("refused")

    def _finish(self, row: OutboxRow, results: list[object]) -> None:
        """The row is in the store: mark it for deletion, and notify its transaction."""
        # Only after the commit was waited for: a row that counts as done is durable in the store.
        self._after = row.id
        self._mark_relayed(row)
        transaction = self._expected.pop(row.id, None)
        if transaction is not None:
            try:
                transaction.stored(results)
            except Exception:
                log.exception("an action after the commit of a transaction has failed")

    # The table

    def _opened(self) -> OutboxTable:
        """The open table. A file that was replaced is opened again, and read from the beginning."""
        if self._table is not None and self._table.is_stale():
            self._close_table()
        if self._table is None:
            self._table = self._open_table()
            # A replaced file has other rows under the same ids.
            self._after = 0
        return self._table

    def _close_table(self) -> None:
        table, self._table = self._table, None
        if table is not None:
            table.close()

    def _mark_relayed(self, row: OutboxRow) -> None:
        self._relayed[row.source] = max(row.id, self._relayed.get(row.source, 0))
        self._undeleted += 1
        if self._delete_at_s == math.inf:
            self._delete_at_s = time.monotonic() + TIDY_S

    def _delete_relayed(self, now: bool) -> None:
        """Delete relayed rows. A locked file postpones that: the position already prevents a second relay."""
        if not self._relayed or not (now or self._undeleted >= TIDY_ROWS or time.monotonic() >= self._delete_at_s):
            return
        try:
            for source, up_to in list(self._relayed.items()):
                self._opened().delete(self._name, source, up_to)
                del self._relayed[source]
        except StoreBusy:
            self._delete_at_s = time.monotonic() + RETRY_S_MAX
        else:
            self._undeleted, self._delete_at_s = 0, math.inf

    def _deletion_pause_s(self) -> float:
        return max(0.0, self._delete_at_s - time.monotonic())

    def close(self) -> None:
        self._close_table()


def _has_ended(transaction: Expected) -> bool:
    return transaction.is_joined() and not transaction.is_undecided()
