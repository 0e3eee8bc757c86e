"""The way of one outbox into the store. A position goes on in the batch that holds the messages, and so:

    crash before the batch is durable     the row is there, the position is not: it is relayed
    crash after that                      the position is past the row: it is only deleted
    the store refuses for now             the row waits, and those behind it; their order is kept
    the store will never take it          it is set aside, told, and those behind it pass

Only the relay's thread steps; what others may call is in the first part.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from unibus.bus.outbox.outbox import OutboxRow, OutboxTable, position_name, unpacked
from unibus.core.lifecycle.commands import Advance
from unibus.errors import BusClosed, BusError, DecodeError, PositionMoved, StoreBusy, StoreFailed, StoreUnavailable
from unibus.stores.seam.pending import Pending
from unibus.stores.seam.store import Store

log = logging.getLogger("unibus")

ROWS: Final = 200
"""Rows that are read at once. Their batches are written together."""

RETRY_S: Final = 0.05
RETRY_S_MAX: Final = 1.0
LOCKED_S_MAX: Final = 0.2
"""Between two looks at a file that is locked: one that is written to all the time has few moments."""

PATIENCE_S: Final = 5.0
"""For so long a lock is no problem worth telling: the driver's own default."""

TIDY_S: Final = 0.25
TIDY_ROWS: Final = 500
"""Relayed rows are deleted together, after that time or so many: each deletion is a commit in the user's file."""


@dataclass
class Relayed:
    """What became of an outbox: `batches` went into the store, `set_aside` it refuses, `elsewhere` are not for it."""

    batches: int = 0
    set_aside: int = 0
    elsewhere: int = 0


@dataclass(frozen=True, eq=False)
class RelayWaiter:
    """Somebody who wants all of it relayed."""

    pending: Pending[Relayed]
    again: bool
    adopt: bool

    def answer(self, relayed: Relayed) -> None:
        self.pending.value.__dict__.update(relayed.__dict__)
        self._decide(None)

    def fail(self, error: BusError) -> None:
        self._decide(lambda: type(error)(error.what, error.hint))

    def _decide(self, failure: Callable[[], BaseException] | None) -> None:
        if self.pending.outcome is not None and not self.pending.outcome.done:
            self.pending.outcome.decide(failure)


class Expected(Protocol):
    """A transaction whose row is on its way."""

    def is_joined(self) -> bool: ...

    def is_undecided(self) -> bool: ...

    def stored(self, results: list[object]) -> None: ...

    def was_lost(self, state: str) -> None: ...


class RelayTarget(Protocol):
    """Where outboxes are relayed to: a store that is open in this process, or a server."""

    def position(self, name: str) -> int: ...

    def advance(self, name: str, before: int, to: int, row: OutboxRow | None) -> Pending[list[object]]:
        """Store the messages of a row together with the position: PositionMoved, and nothing stored, if it is not at
        `before`. Without a row only the position goes on."""


class StoreRelay:
    """A store that is open in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def position(self, name: str) -> int:
        return self._store.position(name)

    def advance(self, name: str, before: int, to: int, row: OutboxRow | None) -> Pending[list[object]]:
        sends = [] if row is None else unpacked(row)
        for send in sends:
            send.raises = False  # A caller that wanted an error for a duplicate has its answer already.
        return self._store.apply([*sends, Advance(name, before, to)])


class Route:
    """`due_s` belongs to the relay: when the next step is."""

    def __init__(self, target: RelayTarget, name: str, open_table: Callable[[], OutboxTable]) -> None:
        self.due_s = math.inf
        self._target = target
        self._name = name
        self._open_table = open_table
        self._expected: dict[int, Expected] = {}
        self._lock = threading.Lock()  # For `_waiting`.
        self._waiting: list[RelayWaiter] = []
        self._table: OutboxTable | None = None
        self._after = 0  # The last row that was seen to; it may still be in the table.
        self._relayed: dict[str, int] = {}  # By source: up to where rows can be deleted.
        self._untidy = 0
        self._tidy_s = math.inf
        self._retry_s = RETRY_S
        self._locked_since_s: float | None = None
        self._look_s = RETRY_S
        self._told = ""

    # From any thread. What happens to `_expected` is one step of a dict each, which is atomic.

    def expect(self, row_id: int, transaction: Expected) -> None:
        before = self._expected.get(row_id)
        self._expected[row_id] = transaction
        if before is not None:
            before.was_lost("rolled back")  # Else its number could not be drawn again.

    def forget(self, row_id: int) -> None:
        self._expected.pop(row_id, None)

    def await_all(self, waiting: RelayWaiter) -> None:
        with self._lock:
            self._waiting.append(waiting)

    def give_up(self, error: BusError) -> None:
        """Tell all who wait."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.fail(error)

    # The step

    def step(self, last: bool = False) -> float:
        """Relay what is there. Gives how many seconds to rest: infinity where nothing is left to do.

        The last one tidies up if it can; to be tried again it has to find the file locked.
        """
        with self._lock:
            waiting = list(self._waiting)
        decided = [(row_id, each) for row_id, each in list(self._expected.items()) if _is_over(each)]
        try:
            if any(each.again or each.adopt for each in waiting):
                self._readdress(waiting)
            count = self._relay_all()
            self._drop(decided)
            self._tidy(bool(waiting) or last)
            self._answer(waiting, count)
        except (BusClosed, StoreFailed) as error:
            self.give_up(error)  # The store is gone. Opened again, it knows where it was.
            return math.inf
        except BusError as error:
            wait_s = self._put_off(error)
            return wait_s if not last or isinstance(error, StoreBusy) else math.inf
        self._retry_s, self._locked_since_s, self._told = RETRY_S, None, ""
        return math.inf if last else min(self._rest_s(), self._look_again_s())

    def _drop(self, decided: list[tuple[int, Expected]]) -> None:
        """They were over before the look, and the look has not found them."""
        for row_id, transaction in decided:
            if self._expected.get(row_id) is transaction:
                self.forget(row_id)
                transaction.was_lost("rolled back")

    def _put_off(self, error: BusError) -> float:
        """Try again later. Whoever waits is told, but a lock is given some time to end."""
        now_s = time.monotonic()
        if not isinstance(error, StoreBusy):
            self._let_go()
            self.give_up(error)
            self._tell(error)
        elif self._locked_since_s is None:
            self._locked_since_s = now_s
        elif now_s - self._locked_since_s > PATIENCE_S:
            self.give_up(error)
            self._tell(error)
        longest_s = LOCKED_S_MAX if isinstance(error, StoreBusy) else RETRY_S_MAX
        wait_s, self._retry_s = min(self._retry_s, longest_s), min(2 * self._retry_s, RETRY_S_MAX)
        return wait_s

    def _tell(self, error: BusError) -> None:
        if error.what != self._told:
            self._told = error.what
            log.warning("an outbox waits: %s", error)

    def _look_again_s(self) -> float:
        """A transaction that a block has joined is committed by somebody else, who does not tell us."""
        if not any(each.is_joined() for each in list(self._expected.values())):
            self._look_s = RETRY_S
            return math.inf
        wait_s, self._look_s = self._look_s, min(2 * self._look_s, RETRY_S_MAX)
        return wait_s

    def _readdress(self, waiting: list[RelayWaiter]) -> None:
        self._opened().readdress(self._name, any(each.again for each in waiting), any(each.adopt for each in waiting))
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
            self._after = 0  # The numbers have gone back: the file is an earlier one.
        count = 0
        while rows := self._opened().read(self._name, self._after, ROWS):
            count += self._relay(rows)
        return count

    def _relay(self, rows: list[OutboxRow]) -> int:
        """Hand rows to the store, and wait for all of them together."""
        on_their_way: list[tuple[OutboxRow, Pending[list[object]]]] = []
        try:
            for row in rows:
                pending = self._apply(row)
                if pending is not None:
                    on_their_way.append((row, pending))
        finally:
            for row, pending in on_their_way:
                self._arrived(row, pending.wait())
        return len(on_their_way)

    def _apply(self, row: OutboxRow) -> Pending[list[object]] | None:
        """None where nothing is to be done: it was relayed before, or is set aside."""
        name = position_name(row.source)
        while row.id > (position := self._target.position(name)):
            try:
                return self._target.advance(name, position, row.id, row)
            except PositionMoved:
                continue
            except (BusClosed, StoreFailed, StoreUnavailable):
                raise
            except BusError as error:
                if error.retryable:
                    raise
                self._set_aside(row, error)
                return None
        self._arrived(row, [])  # Before, in another life of this process or in an answer that was lost.
        return None

    def _set_aside(self, row: OutboxRow, error: BusError) -> None:
        what = "it is damaged" if isinstance(error, DecodeError) else "the store refuses it"
        self._opened().set_aside(row.id, str(error))
        log.error("row %d of an outbox is set aside, %s: %s", row.id, what, error)
        transaction = self._expected.pop(row.id, None)
        if transaction is not None:
            transaction.was_lost("refused")

    def _arrived(self, row: OutboxRow, results: list[object]) -> None:
        self._after = row.id
        self._note(row)
        transaction = self._expected.pop(row.id, None)
        if transaction is not None:
            try:
                transaction.stored(results)
            except Exception:
                log.exception("what follows the commit of a transaction has raised")

    # The table

    def _opened(self) -> OutboxTable:
        if self._table is not None and self._table.is_stale():
            self._let_go()
        if self._table is None:
            self._table = self._open_table()
            self._after = 0
        return self._table

    def _let_go(self) -> None:
        """The file may be another one when it is opened again."""
        table, self._table = self._table, None
        if table is not None:
            table.close()

    def _note(self, row: OutboxRow) -> None:
        self._relayed[row.source] = max(row.id, self._relayed.get(row.source, 0))
        self._untidy += 1
        if self._tidy_s == math.inf:
            self._tidy_s = time.monotonic() + TIDY_S

    def _tidy(self, now: bool) -> None:
        """Delete what was relayed. Where the file is locked that can wait: nothing is relayed twice for it."""
        if not self._relayed or not (now or self._untidy >= TIDY_ROWS or time.monotonic() >= self._tidy_s):
            return
        try:
            for source, up_to in list(self._relayed.items()):
                self._opened().delete(self._name, source, up_to)
                del self._relayed[source]
        except StoreBusy:
            self._tidy_s = time.monotonic() + RETRY_S_MAX
        else:
            self._untidy, self._tidy_s = 0, math.inf

    def _rest_s(self) -> float:
        return max(0.0, self._tidy_s - time.monotonic())

    def close(self) -> None:
        self._let_go()


def _is_over(transaction: Expected) -> bool:
    return transaction.is_joined() and not transaction.is_undecided()
