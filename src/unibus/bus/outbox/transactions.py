"""A transaction over the user's own connection: its messages become a row of their outbox, and their commit decides.

Who commits: the block ends the transaction that it began. Where one was open already the block joins it as a savepoint,
and whoever began it commits. An exception takes back the rows and the messages of the block, and nothing else.

Only sends and publishes can be collected. A settlement is about the bus's own store, and until the relay has come by,
its lock could end.
"""

import logging
from typing import Final

from unibus.bus.outbox.outbox import Outbox, packed, position_name
from unibus.bus.outbox.relay import Relay
from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.queues.transactions import Transaction, current
from unibus.core.lifecycle.commands import Advance, Command, Send
from unibus.errors import PositionMoved, TransactionInvalid
from unibus.limits import BATCH_COMMANDS_MAX
from unibus.stores.seam.pending import Pending, resolved
from unibus.stores.seam.store import Store

log = logging.getLogger("unibus")

IN_OUTBOX: Final = "outbox"
"""The durability of a result as long as its message waits in the outbox."""

_NEVER: Final = "outbox/never"
"""A position that stands at 0 for ever."""


class OutboxTransaction(Transaction):
    """Made by `bus.transaction(connection=…)`. It may be used once."""

    def __init__(self, store: Store, exchange: Exchange, outbox: Outbox, relay: Relay) -> None:
        super().__init__(store, exchange)
        self.outbox = outbox
        self._relay = relay
        self._row_id = 0

    def _check(self, command: Command) -> None:
        if not isinstance(command, Send):
            raise TransactionInvalid(
                "a transaction over a connection of yours holds sends and publishes, nothing else",
                "settle after the block, and give what it sends a dedup_key made of the message's id",
            )
        # One more goes along with them: the position.
        if len(self._commands) >= BATCH_COMMANDS_MAX - 1:
            raise TransactionInvalid(f"more than {BATCH_COMMANDS_MAX - 1} messages in one transaction", "use several")

    # Beginning

    def _open(self) -> None:
        if self.state == "new":
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
            "a transaction over a connection commits by itself, and is inside of one that does not use it",
            "open it outside, or use the same connection for both",
        )

    # Ending

    def _leave(self, error: BaseException | None) -> Pending[list[object]]:
        self._close()
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
        self._mark("")
        try:
            self.outbox.rollback()
        finally:
            self._taken_back()

    def _commit(self) -> None:
        try:
            self.outbox.check()
            # Without a row nobody would notice when the commit is somebody else's.
            if self._outer is None and (self._commands or (self._afterwards and self.outbox.joined)):
                self._write()
            self.outbox.commit()
        except BaseException:
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
        # Before the commit: the relay may see the row as soon as that is made.
        self._relay.expect(self.outbox, self._row_id, self)

    def _refuse_now(self, sends: list[Send]) -> None:
        """Raise what the store would: after the commit nobody could be told. Nothing is changed.

        A batch with a step that cannot be is refused; where that is the only reason, the store would take the rest.
        """
        try:
            self.store.apply([*sends, Advance(_NEVER, 1, 1)])
        except PositionMoved:
            return

    def _position(self, source: str) -> int:
        return self.store.position(position_name(source))

    def _mark(self, durability: str) -> None:
        for result in self._results:
            if result is not None:
                result.durability = durability

    def _hand_on(self) -> None:
        self.state = "joined" if self.outbox.joined else "committed"
        if self._row_id:
            self._relay.kick(self.outbox)

    def _committed(self, results: list[object]) -> None:
        if self._outer is None and not self.outbox.joined:
            self._follow(False)

    def _follow(self, stored: bool) -> None:
        """What depends on the commit, or on the store's answer; what waits for the store is done by the relay."""
        for action, needs_store in self._afterwards:
            if needs_store == stored:
                action()

    # Told by the relay, in its thread

    def is_undecided(self) -> bool:
        return self.outbox.is_undecided()

    def is_joined(self) -> bool:
        return self.state == "joined"

    def stored(self, results: list[object]) -> None:
        """The messages are in the store: results get their sequence."""
        self._fill(results)
        if self.is_joined():
            self.state = "committed"
            self._follow(False)
        self._follow(True)

    def was_lost(self, state: str) -> None:
        """Whoever began the transaction has rolled it back; or the store will not take its messages."""
        self.state = state
        self._taken_back()
