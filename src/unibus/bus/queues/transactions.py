"""Transactions: collect sends and settlements, and apply them as one atomic batch at the end of the block.

    async with bus.transaction():          or: with bus.transaction():
        await bus.send("invoices", …)      nothing is stored yet
        await message.complete()           nothing is settled yet
    # here: all of it is stored and settled, or nothing

    new ──enter──▶ open ──exit──▶ committing ──▶ committed | failed
                     └──the block raises──▶ rolled back

The current transaction belongs to the task (or thread) that opened it, not to tasks that it starts. A transaction
inside another is a savepoint: if it raises, only what it has collected is discarded.

Crashes: nothing reaches the store before the commit, and the commit is one batch of the store. A process that is killed
leaves no part of a transaction.

A transaction on a database connection of the user is an OutboxTransaction (outbox/transactions.py): it writes its batch
into that database.
"""

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from typing import Final

from unibus.bus.pubsub.exchange import Exchange
from unibus.core.lifecycle.commands import Command, SendResult
from unibus.counting import counted
from unibus.display import described
from unibus.errors import StoreFailed, TransactionInvalid
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.pending import Pending, resolved, running_loop
from unibus.stores.seam.store import Store

_CURRENT: Final[ContextVar["Transaction | None"]] = ContextVar("unibus_transaction", default=None)


def current(store: Store) -> "Transaction | None":
    """The open transaction of this task or thread on the store, or None."""
    # A task inherits the context of the task that started it, hence also this variable. Compare the owner: what a child
    # task sends must not depend on whether its parent is still inside its block.
    found = _CURRENT.get()
    while found is not None and found.store is not store:
        found = found.parent
    return found if found is not None and found.owner == _here() else None


def _here() -> object:
    loop = running_loop()
    if loop is None:
        return threading.get_ident()
    import asyncio  # A loop runs, so it is loaded.

    return asyncio.current_task(loop) or threading.get_ident()


class Transaction:
    """The result of `bus.transaction()`: one `with` or `async with` block. It can be used once."""

    def __init__(self, store: Store, exchange: Exchange, durability: Durability | None = None) -> None:
        self.store = store
        self._exchange = exchange
        self.owner: object = None
        self.parent: Transaction | None = None
        self.state = "new"
        self._durability = durability
        self._outer: Transaction | None = None  # The transaction that this savepoint belongs to.
        self._commands: list[Command] = []
        self._results: list[SendResult | None] = []
        self._afterwards: list[tuple[Callable[[], object], bool]] = []  # The flag: it needs the store's results.
        self._otherwise: list[tuple[Callable[[], object], bool]] = []  # The flag: also if the outcome is unknown.
        self._token: Token[Transaction | None] | None = None

    def add(self, command: Command, result: SendResult | None = None) -> None:
        """Collect a command. `result` is filled when the transaction is committed."""
        if self.state != "open":
            raise TransactionInvalid(
                f"the transaction is {self.state}: nothing can be added", "open a new one: bus.transaction()"
            )
        self._check(command)
        self._commands.append(command)
        self._results.append(result)

    def add_many(self, commands: Sequence[Command], results: Sequence[SendResult | None]) -> None:
        """Collect all commands of a batch, or none if one is refused: the caller may catch that and still commit."""
        before = len(self._commands)
        try:
            for command, result in zip(commands, results, strict=True):
                self.add(command, result)
        except BaseException:
            # Cut back to the length before: the lists of commands and results stay parallel.
            del self._commands[before:], self._results[before:]
            raise

    def _check(self, command: Command) -> None:
        """Raise if the command is not allowed. A savepoint allows what its outer transaction allows."""
        if self._outer is not None:
            self._outer._check(command)

    def afterwards(self, action: Callable[[], object]) -> None:
        """Call the action after the commit; never if the transaction fails or is rolled back."""
        self._afterwards.append((action, False))

    def when_stored(self, action: Callable[[], object]) -> None:
        """Call the action once the messages are in the store and their results filled: usually right after the commit,
        for an outbox when the relay has stored them."""
        self._afterwards.append((action, True))

    def otherwise(self, action: Callable[[], object], if_unknown: bool = False) -> None:
        """Call the action if the collected commands are discarded; with `if_unknown` also after StoreFailed."""
        self._otherwise.append((action, if_unknown))

    def __len__(self) -> int:
        return len(self._commands)

    def __repr__(self) -> str:
        return described(self, lambda: f"{self.state}, {counted(len(self._commands), 'operation')}")

    def _open(self) -> None:
        if self.state != "new":
            raise TransactionInvalid(
                f"the transaction is {self.state} and cannot be entered again", "open a new one: bus.transaction()"
            )
        # `transactions` counts the open ones of the bus: while it is 0, every send skips the lookup of the context
        # variable.
        self.owner = _here()
        # Only of this store and this task; `parent` is any transaction of the context, and leads to those of other
        # stores.
        self._outer = current(self.store)
        self.parent = _CURRENT.get()
        self._token = _CURRENT.set(self)
        # No lock: nothing is called between the read and the write, and the interpreter switches threads only at calls
        # and at the ends of loops.
        self._exchange.transactions += 1
        self.state = "open"

    def _leave(self, error: BaseException | None) -> Pending[list[object]]:
        """End the block. Returns the answer of the batch, which is resolved if nothing has to be written."""
        # First, so that what `otherwise` and the callers do from here on is no part of this transaction.
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
        # An embedded store checks the whole batch and raises before any change, or decides it in memory. From then on
        # it cannot be undone: only the write can fail, with an unknown outcome. With another store a refusal may
        # arrive with the answer (`_outcome`).
        self.state = "committing"
        try:
            return self.store.apply(self._commands, self._durability)
        except BaseException as failure:
            self.state = "failed"
            self._taken_back(isinstance(failure, StoreFailed))
            raise

    def _close(self) -> None:
        """Stop collecting: the transaction is not the current one any more."""
        if self._token is not None:
            _CURRENT.reset(self._token)
            self._exchange.transactions -= 1

    def _taken_back(self, is_unknown: bool = False) -> None:
        for action, if_unknown in self._otherwise:
            if if_unknown or not is_unknown:
                action()

    def _take_over(self, inner: "Transaction") -> None:
        # Not checked again: a savepoint asks its outer transaction for each command (`_check`).
        self._commands += inner._commands
        self._results += inner._results
        self._afterwards += inner._afterwards
        self._otherwise += inner._otherwise

    def _committed(self, results: list[object]) -> None:
        if self._outer is not None:
            return
        self.state = "committed"
        self._fill(results)
        # After the results are filled: actions read the sequence numbers.
        for action, _ in self._afterwards:
            action()

    def _fill(self, results: list[object]) -> None:
        # The objects that `send` returned inside of the block are filled in: the caller holds them already.
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
            # The wait ended, by a cancellation, Ctrl-C or a failed write; the batch is decided. Its actions run when
            # the answer comes, in the thread that commits.
            if error is None:
                pending.on_done(self._outcome)
            raise
        if error is None:
            self._committed(results)

    def _outcome(self, pending: Pending[list[object]]) -> None:
        """The commit failed; or the waiting caller was interrupted, while the batch is being written and cannot be
        undone. If it succeeds, the actions after the commit must run."""
        error = pending.error
        if error is None:
            self._committed(pending.value)
            return
        self.state = "failed"
        # A refusal that arrived with the answer: nothing was applied. After StoreFailed that is unknown.
        self._taken_back(isinstance(error, StoreFailed))

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
