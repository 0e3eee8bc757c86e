"""Publishes staged rows exactly once: the bus stores how far a batch is published.

The transaction that publishes rows also advances a position in the bus (decision 0016), so both are stored or neither:

    batch · 2³² + rows      so many rows of the batch are in the bus
    (batch + 1) · 2³²       all rows of the batch are

A stream has one position for all of its batches. A batch write has a position of its own, as batch 0.

    crash before the first transaction  nothing is published; the retry publishes what Spark computes then
    crash between two transactions      the listing is stored: the retry publishes the rest of the same rows
    crash after the last one            the position is past the batch: the retry only deletes the files

Another checkpoint counts its batches from 0 again, so its first ones would look like retries. Therefore the first
transaction of a stream also stores the owner of the name, in a second position: a hash of the checkpoint's id.
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
_ANOTHER: Final = "a new or restored checkpoint needs another name"


@dataclass(frozen=True)
class Effect:
    """The rows of one batch of one query, to be published once. `position` is the name of the position in the bus."""

    query: str
    position: str
    number: int
    label: str
    is_remembered: bool = True
    """False for a write with a random name, which cannot be retried: a single transaction then needs no position."""
    checkpoint: str = ""
    """The id of the checkpoint of a stream. A batch write has none."""

    @property
    def owned(self) -> str:
        """The name of the position that stores the owner of the query's name."""
        return f"spark-checkpoint/{self.query}"

    @property
    def owner(self) -> int:
        """Never 0, which is the value of a new position."""
        return int.from_bytes(hashlib.sha256(self.checkpoint.encode()).digest()[:8]) >> 1 or 1

    def check_owner(self, found: int) -> None:
        if found not in (0, self.owner):
            raise UsageError(
                f"query {self.query!r} was written from another checkpoint", f"{_ANOTHER}: change the option query"
            )

    @property
    def begin(self) -> int:
        return self.number << BATCH_SHIFT

    @property
    def end(self) -> int:
        return (self.number + 1) << BATCH_SHIFT

    def done(self, stands: int) -> int | None:
        """How many of its rows are in the bus, if the position has the value `stands`; None for all of them."""
        if self.end <= stands:
            self._check_not_older(stands)
            return None
        if stands > self.begin:
            return stands - self.begin
        if stands & ROWS_MAX:
            raise TransactionInvalid(
                f"batch {stands >> BATCH_SHIFT} of query {self.query!r} is published only in part",
                "run that batch again first",
            )
        return 0

    def _check_not_older(self, stands: int) -> None:
        """Spark retries at most the last batch. An older number is from a checkpoint that was restored."""
        last = (stands >> BATCH_SHIFT) - 1
        if self.number < last:
            raise UsageError(
                f"query {self.query!r} has written batch {last}, and now writes batch {self.number}",
                f"{_ANOTHER}: change the option query",
            )


@contextlib.contextmanager
def open_bus(url: str) -> Iterator[SyncMessageBus]:
    """Open the bus as the owner of its store."""
    try:
        bus = SyncMessageBus(url)
    except StoreBusy as error:
        raise StoreBusy(error.what, "stop that process while Spark writes: a store has one owner") from error
    with bus:
        yield bus


@dataclass
class PublishProgress:
    """The rows that one call has published, also if it failed after that."""

    rows: int = 0


def publish(
    url: str, effect: Effect, staging: Staging, staged: Sequence[Staged], rows: int, progress: PublishProgress
) -> bool:
    """Publish all rows of the batch that are not in the bus yet, `rows` per transaction.

    False if there is no row: then it did not check whether another batch in this folder is published in part.
    """
    if not any(each.rows for each in staged) and not staging.is_listed(effect.label):
        return False
    with open_bus(url) as bus:
        with bus.transaction() as nothing:
            stands, owner = nothing.store.position(effect.position).wait(), nothing.store.position(effect.owned).wait()
        if effect.checkpoint:
            effect.check_owner(owner)
        done = effect.done(stands)
        if done is None:
            return True
        # As long as none of its rows is in the bus, a batch may still change.
        listing = _begun(effect, done, staging) if done else staging.list(effect.label, staged)
        if listing.rows > ROWS_MAX:
            raise UsageError(
                f"the batch has {listing.rows:,} rows, at most {ROWS_MAX:,} are allowed", "write several batches"
            )
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
