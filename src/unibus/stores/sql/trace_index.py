# mypyc: compiled
"""An index from message id to the changes about it, so that a trace does not read the whole history.

    change ──▶ (CRC of the message id, distance from the first change of the block) ──▶ bucket = upper 7 bits of the CRC

Pairs collect in memory as changes are written. A full block is written to the file, one row per bucket. A search reads
one bucket of every block: some kilobytes per ten thousand changes. Two ids may have one CRC, so the caller compares the
message ids of what it finds.
"""

import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, Protocol, cast, final

from mypy_extensions import i64

from unibus.core.lifecycle.state.changes import Change, MessageRef

BLOCK_CHANGES = 65_536  # Not final: tests make small blocks.
BUCKETS: Final = 128
_SHIFT: Final = 25  # The upper seven bits of a CRC.
_PAIR_BYTES: Final = 8
_LOWER: Final = (1 << 32) - 1


class _About(Protocol):
    """A change that is about a message, as nearly all are."""

    who: MessageRef


@final
class Block:
    """The pairs of the changes from `first` to the one before `next`. A pair is one number, the CRC in its lower
    half."""

    def __init__(self, first: int) -> None:
        self.first: i64 = first
        self.next: i64 = first
        self.buckets: list[list[int]] = [[] for _ in range(BUCKETS)]

    def add(self, changes: Sequence[Change]) -> None:
        crc32 = zlib.crc32
        buckets = self.buckets
        distance: i64 = self.next - self.first
        for change in changes:
            try:
                who = cast("_About", change).who
            except AttributeError:
                distance += 1
                continue
            crc: i64 = crc32(who.message_id.encode())
            buckets[crc >> _SHIFT].append(distance << 32 | crc)
            distance += 1
        self.next = self.first + distance

    def data(self, bucket: int) -> bytes:
        """A bucket in the form in which it is written."""
        return array("Q", self.buckets[bucket]).tobytes()

    def find(self, crc: int) -> list[int]:
        return [self.first + (pair >> 32) for pair in self.buckets[bucket_of(crc)] if pair & _LOWER == crc]


def crc_of(message_id: str) -> int:
    return zlib.crc32(message_id.encode())


def bucket_of(crc: int) -> int:
    return crc >> _SHIFT


def find(first: int, data: bytes, crc: int) -> Iterator[int]:
    """The seqs that a bucket has for the CRC."""
    wanted = array("I", [crc]).tobytes()
    at = data.find(wanted)
    while at >= 0:
        # The same four bytes may also occur across two numbers, or as a distance.
        if at % _PAIR_BYTES == 0:
            yield first + int.from_bytes(data[at + 4 : at + _PAIR_BYTES], sys.byteorder)
        at = data.find(wanted, at + 1)
