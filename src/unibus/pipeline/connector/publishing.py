"""Publishing staged rows, each once: the bus itself remembers how far a batch has come.

A position goes on in the transaction that holds the rows (decision 0016), so both are there or neither:

    batch · 2³² + rows      so many rows of the batch are in the bus
    (batch + 1) · 2³²       all of it is

A stream has one position, and its batches follow each other. A batch write has a position of its own, as batch 0.

    crash before the first transaction  nothing is published; the batch is what Spark computes then
    crash between two transactions      the list is there: the rest of the same rows follows
    crash after the last one            the position is past the batch: nothing is left but to remove the files

Another checkpoint counts its batches from 0 again, so that its first ones would look like repetitions. Therefore the
first transaction of a stream also says whose the name is, in a second position: a number made of the checkpoint's id.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.lifecycle.commands import Advance, Send
from unibus.errors import StoreBusy, StoreDamaged, TransactionInvalid, UsageError
from unibus.pipeline.connector.staging import Cell, Staged, StagedListing, Staging

BATCH_SHIFT: Final = 32
ROWS_MAX: Final = 2**BATCH_SHIFT - 1
TRANSACTION_BYTES: Final = 4_000_000
_ANOTHER: Final = "a checkpoint that is new, or was put back, needs another name"


@dataclass(frozen=True)
class Effect:
    """What shall happen once: the rows of one batch of one query. `position` is where the bus remembers it."""

    query: str
    position: str
    number: int
    label: str
    is_remembered: bool = True
    """False for a write that nobody can repeat, because its name was drawn: then a single transaction needs none."""
    checkpoint: str = ""
    """The id of the checkpoint that a stream has. A batch write has none."""

    @property
    def owned(self) -> str:
        """The position that says whose the name is."""
        return f"spark-checkpoint/{self.query}"

    @property
    def owner(self) -> int:
        """Never 0, which is where a position begins."""
        return int.from_bytes(hashlib.sha256(self.checkpoint.encode()).digest()[:8]) >> 1 or 1

    def check_owner(self, found: int) -> None:
        if found not in (0, self.owner):
            raise UsageError(
                f"query {self.query!r} has been written from another checkpoint", f"{_ANOTHER}: change the option query"
            )

    @property
    def begin(self) -> int:
        return self.number << BATCH_SHIFT

    @property
    def end(self) -> int:
        return (self.number + 1) << BATCH_SHIFT

    def done(self, stands: int) -> int | None:
        """How many of its rows are in the bus, where the position stands there; None for all of them."""
        if self.end <= stands:
            self._check_not_older(stands)
            return None
        if stands > self.begin:
            return stands - self.begin
        if stands & ROWS_MAX:
            raise TransactionInvalid(
                f"batch {stands >> BATCH_SHIFT} of query {self.query!r} is half written", "let it be written first"
            )
        return 0

    def _check_not_older(self, stands: int) -> None:
        """Spark repeats the last batch at most. An older number comes from a checkpoint that was put back."""
        last = (stands >> BATCH_SHIFT) - 1
        if self.number < last:
            raise UsageError(
                f"query {self.query!r} has written batch {last}, and now comes with batch {self.number}",
                f"{_ANOTHER}: change the option query",
            )


@contextlib.contextmanager
def open_bus(url: str) -> Iterator[SyncMessageBus]:
    """The bus, as its owner. The one place for another way: a bus that runs elsewhere and takes messages over HTTP."""
    try:
        bus = SyncMessageBus(url)
    except StoreBusy as error:
        raise StoreBusy(
            error.what, "stop it while Spark writes: a store has one owner, and a running bus takes no rows yet"
        ) from error
    with bus:
        yield bus


@dataclass
class PublishProgress:
    """Rows that one call has brought into the bus, also where it failed after that."""

    rows: int = 0


def publish(
    url: str, effect: Effect, staging: Staging, staged: Sequence[Staged], rows: int, progress: PublishProgress
) -> bool:
    """Bring the batch into the bus, all of it, whatever has happened to it before. `rows` go into a transaction.

    False where there is no row: then nobody has looked whether another batch was begun in this folder.
    """
    if not any(each.rows for each in staged) and not staging.is_listed(effect.label):
        return False
    with open_bus(url) as bus:
        with bus.transaction() as nothing:
            stands, owner = nothing.store.position(effect.position), nothing.store.position(effect.owned)
        if effect.checkpoint:
            effect.check_owner(owner)
        done = effect.done(stands)
        if done is None:
            return True
        # As long as nothing of it is in the bus a batch may still be corrected.
        listing = _begun(effect, done, staging) if done else staging.list(effect.label, staged)
        if listing.rows > ROWS_MAX:
            raise UsageError(f"{listing.rows:,} rows in one batch", f"at most {ROWS_MAX:,}: write several")
        transactions = _transactions(staging.cells(listing, done), rows)
        _publish_rest(bus, effect, stands, transactions, listing.rows - done, progress)
    return True


def _begun(effect: Effect, done: int, staging: Staging) -> StagedListing:
    listing = staging.listed(effect.label)
    if listing is None:
        raise StoreDamaged(
            f"{done} rows of {effect.query!r}, batch {effect.label}, are in the bus, but not in {staging.folder}",
            "set the option staging to where it was, or give the query another name to write all of its rows",
        )
    return listing


def _publish_rest(
    bus: SyncMessageBus, effect: Effect, stands: int, rest: Iterator[list[Send]], left: int, progress: PublishProgress
) -> None:
    for commands in rest:
        left -= len(commands)
        to = max(stands, effect.begin) + len(commands) if left else effect.end
        with bus.transaction() as block:
            for command in commands:
                block.add(command)
            if effect.is_remembered or left or progress.rows:
                block.add(Advance(effect.position, stands, to))
            if effect.checkpoint and not stands:
                block.add(Advance(effect.owned, 0, effect.owner))
        stands = to
        progress.rows += len(commands)


def _transactions(cells: Iterator[Cell], rows: int) -> Iterator[list[Send]]:
    commands: list[Send] = []
    size = 0
    for cell in cells:
        cell_size = sum(command.size for command in cell.commands)
        if commands and (len(commands) + cell.rows > rows or size + cell_size > TRANSACTION_BYTES):
            yield commands
            commands, size = [], 0
        commands += cell.commands
        size += cell_size
    if commands:
        yield commands
