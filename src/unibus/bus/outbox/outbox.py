"""The transactional outbox: messages wait in the user's own database, so that one commit covers rows and messages.

    the block ─▶ write ─▶ commit (the user's)          rows and messages, or neither
                             │ kick
                             ▼
               the relay ─▶ read ─▶ store.apply([the messages, Advance(position)]) ─▶ delete

This module is the interface to any database. `Outbox` works through the user's connection, in the user's thread;
`OutboxTable` works through a connection of the relay, in the relay's thread. One transaction of the user is one row of
the outbox, and one atomic batch of the store.

The store takes each row exactly once, because of three columns:

- `id` only increases within one file;
- `source` names a series of ids in which no id belongs to two rows. A file that was copied, or restored from a backup,
  begins a new source with its next row, because its next ids may have been used already;
- `store` names the store that the messages are for. Two buses may use one file, and each relays its own rows only.

For every source the store keeps the id of the last relayed row as a position. It advances the position in the batch
that holds the messages, so a crash never separates the two.
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
    """The name of the position that holds the id of the last relayed row of a source."""
    return f"outbox/{source}"


class OutboxRow(NamedTuple):
    id: int
    source: str
    batch: bytes
    crc: int


class Outbox(Protocol):
    """The outbox of one database, through one connection of the user. Errors of the database are not translated."""

    address: str
    """Identifies the database. Equal addresses are one outbox."""

    joined: bool
    """After `begin`: whether a transaction was open already. Then the block is a savepoint, and the code that began
    the transaction commits it."""

    @property
    def connection(self) -> object:
        """The user's connection."""

    def begin(self) -> None:
        """Begin a transaction, or join the open one. `rollback` undoes everything after this call."""

    def check(self) -> None:
        """TransactionInvalid if the transaction has ended since `begin`. Called once, before `write`."""

    def write(self, store: str, batch: bytes, position: Callable[[str], int]) -> int:
        """Insert a batch in the open transaction; gives its id. `position` gives the last relayed id of a source."""

    def commit(self) -> None:
        """Commit; a block that has joined a transaction only releases its savepoint."""

    def rollback(self) -> None:
        """Undo what was done since `begin`, and nothing else. A transaction that has ended is no error."""

    def is_undecided(self) -> bool:
        """Whether the transaction that the block has joined may still be open. May be called from any thread."""

    def open_table(self) -> "OutboxTable":
        """Open the relay's own connection. Called in the relay's thread."""


class OutboxTable(Protocol):
    """The outbox of one database, through the relay's own connection. Used in one thread.

    Raises StoreBusy while the database is locked, StoreUnavailable or StoreDamaged for any other error of it.
    """

    def is_stale(self) -> bool:
        """Whether the file at this path has been replaced by another one."""

    def read(self, store: str, after: int, limit: int) -> list[OutboxRow]:
        """Rows for this store with an id above `after`, in order, without those that were set aside."""

    def delete(self, store: str, source: str, up_to: int) -> None:
        """Delete relayed rows of a source."""

    def set_aside(self, row_id: int, why: str) -> None:
        """Mark a row that the store will never accept, so that it does not block later rows. The row is kept."""

    def readdress(self, store: str, again: bool, adopt: bool) -> None:
        """`again`: make rows that were set aside eligible again. `adopt`: take over the rows of other stores. Both
        begin a new source, because the positions of the old one may be past them."""

    def left(self, store: str) -> tuple[int, int]:
        """How many rows are set aside, and how many are for other stores."""

    def close(self) -> None: ...


# Batches as bytes


class Packed(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A Send as it is stored. Fields may only be appended, with a default: the rows are in files of users."""

    entity: str
    who: MessageRef
    data: bytes
    priority: int
    ttl_ns: int
    visible_ns: int
    dedup_key: str | None
    creates: int
    raises: bool


class OutboxBatch(msgspec.Struct, array_like=True, frozen=True):
    format: int
    sends: list[Packed]


class Head(msgspec.Struct, array_like=True, frozen=True):
    """The first field of every format: it is read before the rest is decoded."""

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
        creates=send.creates,
        raises=send.raises,
    )


def unpacked(row: OutboxRow) -> list[Send]:
    """The sends of a row. DecodeError for a damaged row, StoreVersion for a row that a newer unibus wrote."""
    if zlib.crc32(row.batch) != row.crc:
        raise DecodeError("the checksum of the outbox row does not match its content")
    try:
        if _unpack_head(row.batch).format != FORMAT:
            raise StoreVersion("the outbox row was written by a newer version of unibus", "relay it with that version")
        return [_send(each) for each in _unpack(row.batch).sends]
    except msgspec.DecodeError as error:
        raise DecodeError(f"the outbox row cannot be decoded: {error}") from error


def _send(packed: Packed) -> Send:
    send = Send(packed.entity, packed.who, packed.data, packed.priority)
    send.ttl_ns = packed.ttl_ns
    send.visible_ns = packed.visible_ns
    send.dedup_key = packed.dedup_key
    send.creates = packed.creates
    send.raises = packed.raises
    return send
