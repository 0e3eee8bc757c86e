"""A transaction over the user's own connection: its messages become one row of the outbox, in the user's commit.

The block commits the transaction that it began. If one was open already, the block joins it as a savepoint, and the
code that began it commits. An exception rolls back the rows and the messages of the block, and nothing else.

    new ─▶ open ─┬─▶ committed                the block owned the transaction
                 ├─▶ joined ─▶ committed      the outer code commits; the relay finds the row later
                 │          └▶ rolled back    … or finds that the transaction ended without it
                 └─▶ rolled back, failed      an exception in the block, or at its commit

Only sends and publishes can be collected. A settlement acts on the store of the bus, and its lock could expire before
the relay applies it.
"""

from typing import Final

from unibus.bus.outbox.outbox import Outbox, packed, position_name
from unibus.bus.outbox.relay import Relay
from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.queues.transactions import Transaction, current
from unibus.core.lifecycle.commands import Advance, Command, Send
from unibus.errors import PositionMoved, TransactionInvalid
from unibus.limits import BATCH_COMMANDS_MAX
from unibus.safe_log import SafeLogger
from unibus.stores.seam.pending import Pending, resolved
from unibus.stores.seam.store import Store

log = SafeLogger("unibus")

IN_OUTBOX: Final = "outbox"
"""The durability of a result while its message waits in the outbox."""

_NEVER: Final = "outbox/never"
"""A position that is never advanced: it is always 0."""


class OutboxTransaction(Transaction):
    """Made by `bus.transaction(connection=…)`. It can be used once."""

    def __init__(self, store: Store, exchange: Exchange, outbox: Outbox, relay: Relay) -> None:
        super().__init__(store, exchange)
        self.outbox = outbox
        self._relay = relay
        self._row_id = 0

    def _check(self, command: Command) -> None:
        if not isinstance(command, Send):
            raise TransactionInvalid(
                "a transaction over a connection takes only send and publish",
                "settle after the block, and set a dedup_key made of the received message's id on what it sends",
            )
        # One place of the batch is for the position, which the relay adds.
        if len(self._commands) >= BATCH_COMMANDS_MAX - 1:
            raise TransactionInvalid(
                f"a transaction takes at most {BATCH_COMMANDS_MAX - 1} messages", "use several transactions"
            )

    # Beginning

    def _open(self) -> None:
        if self.state == "new":
            # Reserve, begin, open, in this order: each step undoes the one before it if it fails, so that an error
            # leaves the connection free and no transaction open.
            nested = self._is_nested()
            self._relay.take(self.outbox, nested)
            try:
                self.outbox.begin()
            except BaseException:
                self._relay.release(self.outbox)
                raise
        super()._open()

    def _is_nested(self) -> bool:
        outer = current(self.store)
        if outer is None:
            return False
        while outer._outer is not None:
            outer = outer._outer
        if isinstance(outer, OutboxTransaction) and outer.outbox.connection is self.outbox.connection:
            return True
        raise TransactionInvalid(
            "a transaction over a connection cannot be nested in a transaction that does not use this connection",
            "open it outside of the other one, or use the same connection for both",
        )

    # Ending

    def _leave(self, error: BaseException | None) -> Pending[list[object]]:
        self._close()
        # The connection stays reserved until the commit or rollback is done: another task must not write between them.
        try:
            if error is not None:
                self._roll_back("rolled back")
            else:
                self._commit()
        finally:
            self._relay.release(self.outbox)
        return resolved([])

    def _roll_back(self, state: str) -> None:
        self.state = state
        # The results were marked as durable in the outbox; that is no longer true.
        self._mark("")
        try:
            self.outbox.rollback()
        finally:
            self._taken_back()

    def _commit(self) -> None:
        try:
            self.outbox.check()
            # A joined block writes a row even without messages if actions wait for the commit: the outer code commits,
            # and only the row shows the relay that it did.
            if self._outer is None and (self._commands or (self._afterwards and self.outbox.joined)):
                self._write()
            self.outbox.commit()
        except BaseException:
            # Also for Ctrl-C. Whether the commit reached the disk is unknown then: the rollback is harmless if it did,
            # and the relay finds the row by the kick of `forget`.
            if self._row_id:
                self._relay.forget(self.outbox, self._row_id)
            self._roll_back("failed")
            raise
        if self._outer is not None:
            self._outer._take_over(self)
            self.state = "released into the outer transaction"
        else:
            self._hand_on()

    def _write(self) -> None:
        sends = [command for command in self._commands if isinstance(command, Send)]
        self._refuse_now(sends)
        self._mark(IN_OUTBOX)
        self._row_id = self.outbox.write(self._relay.store_name(), packed(sends), self._position)
        # Before the commit: the relay may see the row as soon as the commit is done.
        self._relay.expect(self.outbox, self._row_id, self)

    def _refuse_now(self, sends: list[Send]) -> None:
        """Raise now what the store would raise for these sends: after the commit no caller is left to get the error.

        The batch also holds an Advance that always fails, so the store validates the sends and applies nothing. If
        PositionMoved is the error, the sends are valid.
        """
        try:
            self.store.apply([*sends, Advance(_NEVER, 1, 1)]).wait()  # An embedded store raises at once.
        except PositionMoved:
            return

    def _position(self, source: str) -> int:
        return self.store.position(position_name(source)).wait()

    def _mark(self, durability: str) -> None:
        for result in self._results:
            if result is not None:
                result.durability = durability

    def _hand_on(self) -> None:
        self.state = "joined" if self.outbox.joined else "committed"
        if self._row_id:
            self._relay.kick(self.outbox)

    def _committed(self, results: list[object]) -> None:
        # A joined block is not committed yet. Its actions run when the relay finds the row (`stored`).
        if self._outer is None and not self.outbox.joined:
            self._follow(False)

    def _follow(self, stored: bool) -> None:
        """Run the actions that wait for the commit, or (`stored`) those that wait for the store's result."""
        for action, needs_store in self._afterwards:
            if needs_store == stored:
                action()

    # Called by the relay, in its thread

    def is_undecided(self) -> bool:
        return self.outbox.is_undecided()

    def is_joined(self) -> bool:
        return self.state == "joined"

    def stored(self, results: list[object]) -> None:
        """The messages are in the store: fill in the sequences of the results, and run the actions that wait for it."""
        self._fill(results)
        if self.is_joined():
            self.state = "committed"
            self._follow(False)
        self._follow(True)

    def was_lost(self, state: str) -> None:
        """The outer code has rolled the transaction back, or the store refuses its messages."""
        self.state = state
        # In the relay's thread: frees the places that publishes to persistent channels had promised.
        self._taken_back()
