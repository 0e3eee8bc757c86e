"""The outbox: messages that wait in the user's own database, so that one commit holds the user's rows and them.

    the block ─▶ write ─▶ commit (theirs)          rows and messages, or neither
                             │ kick
                             ▼
               the relay ─▶ read ─▶ store.apply([the messages, Advance(position)]) ─▶ delete

This is the seam to whatever database it is. `Outbox` sees it through the user's connection, in the user's thread;
`OutboxTable` sees the same through a connection of the relay's own, in the relay's thread. One transaction of the user
is one row, and one atomic batch of the store.

Exactly once rests on three names in a row:

- its `id`, which only grows in one file;
- its `source`, a line of ids in which no number stands for two rows. A file that was copied, or put back from a backup,
  gets a new line with its next row, because its ids may be those of other rows by now;
- its `store`: whose message it is. Two buses may use one file, and each relays its own rows only.

The store remembers for every source how far it has come, in the batch that holds the messages.
"""

import zlib
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from unibus.core.lifecycle.commands import Send
from unibus.core.lifecycle.state.changes import MessageRef
from unibus.errors import DecodeError, StoreVersion

FORMAT: Final = 1


def position_name(source: str) -> str:
    """Where the store remembers how far it has come in a source."""
    return f"outbox/{source}"


class OutboxRow(NamedTuple):
    id: int
    source: str
    batch: bytes
    crc: int


class Outbox(Protocol):
    """The outbox of one database, through one connection of its user. Errors of the database come as they are."""

    address: str
    """Which database it is. Equal addresses are one outbox."""

    joined: bool
    """After `begin`: whether a transaction was open. Then whoever began it ends it, and the block is a savepoint."""

    @property
    def connection(self) -> object:
        """The user's."""

    def begin(self) -> None:
        """Begin a transaction, or join the one that is open. From here on `rollback` takes everything back."""

    def check(self) -> None:
        """TransactionInvalid if somebody has ended the transaction since `begin`. Before `write`, and once."""

    def write(self, store: str, batch: bytes, position: Callable[[str], int]) -> int:
        """Put a batch into the table, in the open transaction; gives its id. `position`: how far a source has come."""

    def commit(self) -> None:
        """Commit; where the block has joined, leave that to whoever began the transaction."""

    def rollback(self) -> None:
        """Take back what happened since `begin`, and nothing else. Never raises because there is nothing to do."""

    def is_undecided(self) -> bool:
        """From any thread: whether the transaction that the block has joined may still be open."""

    def open_table(self) -> "OutboxTable":
        """From the relay's thread."""


class OutboxTable(Protocol):
    """The outbox of one database, through a connection of the relay's own. Used in one thread.

    StoreBusy where the database is locked at the moment, StoreUnavailable or StoreDamaged for anything else.
    """

    def is_stale(self) -> bool:
        """Whether another database has taken the place of this one."""

    def read(self, store: str, after: int, limit: int) -> list[OutboxRow]:
        """Rows for this store with a larger id, in order, but for those that were set aside."""

    def delete(self, store: str, source: str, up_to: int) -> None:
        """Rows of a source that were relayed."""

    def set_aside(self, row_id: int, why: str) -> None:
        """The store will never take it as it is: let those behind it pass. Nothing is thrown away."""

    def readdress(self, store: str, again: bool, adopt: bool) -> None:
        """Let rows wait again that were set aside, and take over those of other stores. They begin a new source."""

    def left(self, store: str) -> tuple[int, int]:
        """How many rows were set aside, and how many are for other stores."""

    def close(self) -> None: ...


# Batches as bytes


class Packed(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A Send. Only append, with a default: such rows are in other people's files."""

    entity: str
    who: MessageRef
    data: bytes
    priority: int
    ttl_ns: int
    visible_ns: int
    dedup_key: str | None
    makes: int
    raises: bool


class OutboxBatch(msgspec.Struct, array_like=True, frozen=True):
    format: int
    sends: list[Packed]


class Head(msgspec.Struct, array_like=True, frozen=True):
    """What every format begins with."""

    format: int


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(OutboxBatch).decode
_unpack_head: Final = msgspec.msgpack.Decoder(Head).decode


def packed(sends: list[Send]) -> bytes:
    return _pack(OutboxBatch(FORMAT, [_packed(send) for send in sends]))


def _packed(send: Send) -> Packed:
    return Packed(
        entity=send.entity,
        who=send.who,
        data=send.data,
        priority=send.priority,
        ttl_ns=send.ttl_ns,
        visible_ns=send.visible_ns,
        dedup_key=send.dedup_key,
        makes=send.makes,
        raises=send.raises,
    )


def unpacked(row: OutboxRow) -> list[Send]:
    """What was packed. DecodeError for anything else, StoreVersion for what a newer unibus wrote."""
    if zlib.crc32(row.batch) != row.crc:
        raise DecodeError("its checksum does not fit")
    try:
        if _unpack_head(row.batch).format != FORMAT:
            raise StoreVersion("a newer version of unibus wrote to the outbox", "relay it with that one")
        return [_send(each) for each in _unpack(row.batch).sends]
    except msgspec.DecodeError as error:
        raise DecodeError(f"it cannot be read: {error}") from error


def _send(packed: Packed) -> Send:
    send = Send(packed.entity, packed.who, packed.data, packed.priority)
    send.ttl_ns = packed.ttl_ns
    send.visible_ns = packed.visible_ns
    send.dedup_key = packed.dedup_key
    send.makes = packed.makes
    send.raises = packed.raises
    return send
