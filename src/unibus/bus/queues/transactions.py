"""Transactions: sends and settlements that are collected, and become one atomic batch when the block is left.

    async with bus.transaction():          or: with bus.transaction():
        await bus.send("invoices", …)      nothing is stored yet
        await message.complete()           nothing is settled yet
    # all of it, or none

The ambient transaction belongs to the task (or thread) that opened it, not to the tasks that it starts. One inside of
another is a savepoint: leaving it by an exception takes back what it collected, and nothing else.

One with a connection of the user's own is an OutboxTransaction (outbox_transactions.py): its batch goes another way.
"""

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Final

from unibus.bus.pubsub.exchange import Exchange
from unibus.core.lifecycle.commands import Command, SendResult
from unibus.errors import TransactionInvalid
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.pending import Pending, resolved
from unibus.stores.seam.store import Store

_CURRENT: Final[ContextVar["Transaction | None"]] = ContextVar("unibus_transaction", default=None)


def current(store: Store) -> "Transaction | None":
    """The transaction that this very task or thread has open on the store."""
    found = _CURRENT.get()
    while found is not None and found.store is not store:
        found = found.parent
    return found if found is not None and found.owner == _here() else None


def _here() -> object:
    try:
        return asyncio.current_task() or threading.get_ident()
    except RuntimeError:
        return threading.get_ident()


class Transaction:
    """Made by `bus.transaction()`. It may be used once."""

    def __init__(self, store: Store, exchange: Exchange, durability: Durability | None = None) -> None:
        self.store = store
        self._exchange = exchange
        self.owner: object = None
        self.parent: Transaction | None = None
        self.state = "new"
        self._durability = durability
        self._outer: Transaction | None = None  # Where a savepoint's commands go.
        self._commands: list[Command] = []
        self._results: list[SendResult | None] = []
        self._afterwards: list[tuple[Callable[[], object], bool]] = []  # With whether it needs the store's answer.
        self._otherwise: list[Callable[[], object]] = []
        self._token: Token[Transaction | None] | None = None

    def add(self, command: Command, result: SendResult | None = None) -> None:
        """Collect a command. `result` is filled in when the transaction is committed."""
        if self.state != "open":
            raise TransactionInvalid(f"the transaction is {self.state}", "open a new one")
        self._check(command)
        self._commands.append(command)
        self._results.append(result)

    def _check(self, command: Command) -> None:
        """Raise what speaks against collecting it. A savepoint holds what the outer transaction may hold."""
        if self._outer is not None:
            self._outer._check(command)

    def afterwards(self, action: Callable[[], object]) -> None:
        """Do this once the transaction is committed; never when it is not."""
        self._afterwards.append((action, False))

    def when_stored(self, action: Callable[[], object]) -> None:
        """Do this once its messages are in the store and their results filled in. Mostly that is the same moment."""
        self._afterwards.append((action, True))

    def otherwise(self, action: Callable[[], object]) -> None:
        """Do this if what was collected is taken back."""
        self._otherwise.append(action)

    def __len__(self) -> int:
        return len(self._commands)

    def _open(self) -> None:
        if self.state != "new":
            raise TransactionInvalid(f"the transaction is {self.state}", "open a new one: bus.transaction()")
        self.owner = _here()
        self._outer = current(self.store)
        self.parent = _CURRENT.get()
        self._token = _CURRENT.set(self)
        self._exchange.transactions += 1
        self.state = "open"

    def _leave(self, error: BaseException | None) -> Pending[list[object]]:
        """End the block. Gives the batch's answer, which is ready where nothing had to be written."""
        self._close()
        if error is not None:
            self.state = "rolled back"
            self._taken_back()
            return resolved([])
        if self._outer is not None:
            self._outer._take_over(self)
            self.state = "released into the outer transaction"
            return resolved([])
        if not self._commands:
            self.state = "committed"
            return resolved([])
        self.state = "committing"
        try:
            return self.store.apply(self._commands, self._durability)
        except BaseException:
            self.state = "failed"
            self._taken_back()
            raise

    def _close(self) -> None:
        """Nothing more is collected."""
        if self._token is not None:
            _CURRENT.reset(self._token)
            self._exchange.transactions -= 1

    def _taken_back(self) -> None:
        for action in self._otherwise:
            action()

    def _take_over(self, inner: "Transaction") -> None:
        self._commands += inner._commands
        self._results += inner._results
        self._afterwards += inner._afterwards
        self._otherwise += inner._otherwise

    def _committed(self, results: list[object]) -> None:
        if self._outer is not None:
            return
        self.state = "committed"
        self._fill(results)
        for action, _ in self._afterwards:
            action()

    def _fill(self, results: list[object]) -> None:
        for given, result in zip(self._results, results, strict=False):
            if given is not None and isinstance(result, SendResult):
                given.sequence = result.sequence
                given.duplicate = result.duplicate
                given.is_routed = result.is_routed
                given.is_forwarded_duplicate = result.is_forwarded_duplicate
                given.durability = result.durability

    async def __aenter__(self) -> "Transaction":
        self._open()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        pending = self._leave(error)
        try:
            results = await pending
        except BaseException:
            if error is None:
                pending.on_done(self._outcome)
            raise
        if error is None:
            self._committed(results)

    def _outcome(self, pending: Pending[list[object]]) -> None:
        """It failed; or whoever waited was interrupted, and nobody can take it back: what depends on it follows."""
        if pending.error is None:
            self._committed(pending.value)
        else:
            self.state = "failed"

    def __enter__(self) -> "Transaction":
        self._open()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        pending = self._leave(error)
        try:
            results = pending.wait()
        except BaseException:
            if error is None:
                pending.on_done(self._outcome)
            raise
        if error is None:
            self._committed(results)
