"""Files of the snapshot: indented JSON with one list of items, each with its own checksum.

    {
      "unibus": "messages",
      …
      "items": [
        {
          "sequence": 1,
          …
          "crc": "5d0c7a31"
        },

An item is a block of lines with a fixed indentation, so it can be found, read and copied without reading what is around
it. `crc` is the CRC-32 of the block up to there. `state.json` has the size and the checksum of the whole file.
"""

import re
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from unibus.errors import StoreDamaged
from unibus.stores.files.disk import Files
from unibus.stores.jsonfile.forms import checksum
from unibus.stores.jsonfile.log import damaged

_BLOCK: Final = re.compile(rb"^    \{\n(?:      .*\n)*    \}", re.MULTILINE)
_CRC: Final = b',\n      "crc": "'
_TAIL: Final = b'"\n    }'
_CRC_CHARS: Final = len(_CRC) + 8 + len(_TAIL)
_CHUNK_BYTES: Final = 1_000_000
ITEM: Final = "the item that begins there is not what was written"


class Listed(msgspec.Struct, omit_defaults=True):
    """A file as `state.json` lists it. `number` is that of its entity; 0 for a file of entities."""

    file: str
    generation: int
    items: int
    bytes: int
    crc: str
    number: int = 0


class ItemRows:
    """Offset and length of each item of a file, by its key. Keys ascend."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.keys, self.offsets, self.lengths = array("q"), array("q"), array("q")

    def add(self, key: int, offset: int, length: int) -> None:
        self.keys.append(key)
        self.offsets.append(offset)
        self.lengths.append(length)

    def find(self, key: int) -> tuple[int, int] | None:
        at = bisect_left(self.keys, key)
        if at == len(self.keys) or self.keys[at] != key:
            return None
        return self.offsets[at], self.lengths[at]


class ItemWindow:
    """Reads items of a file, mostly forward, in large pieces."""

    def __init__(self, files: Files, path: str) -> None:
        self._files, self._path = files, path
        self._base, self._data = 0, b""

    def block(self, offset: int, length: int) -> bytes:
        """An item with a right checksum. Raises StoreDamaged for another."""
        # A large read at the wanted place: keys ascend and mostly follow each other in the file, so the next ones are
        # in it, too.
        if not self._base <= offset <= self._base + len(self._data) - length:
            self._base, self._data = offset, self._files.read(self._path, offset, max(length, _CHUNK_BYTES))
        block = self._data[offset - self._base : offset - self._base + length]
        if not is_whole(block):
            raise damaged(self._path, line_at(self._files, self._path, offset), ITEM)
        return block


def block_of(item: bytes) -> bytes:
    """A JSON object as an item."""
    pretty = msgspec.json.format(item, indent=2).replace(b"\n", b"\n    ")
    body = b"    " + pretty.removesuffix(b"\n    }")
    return b"%b%b%b%b" % (body, _CRC, checksum(body).encode(), _TAIL)


def is_whole(block: bytes) -> bool:
    if not block.endswith(_TAIL) or block[-_CRC_CHARS : -_CRC_CHARS + len(_CRC)] != _CRC:
        return False
    return block[-len(_TAIL) - 8 : -len(_TAIL)] == checksum(block[:-_CRC_CHARS]).encode()


def write_items(
    files: Files, path: str, head: dict[str, object], items: Iterable[tuple[int, bytes]]
) -> tuple[ItemRows, Listed]:
    """Write and sync a new file. `items` are pairs of key and block, in the order of keys."""
    rows = ItemRows(path)
    opening = msgspec.json.format(msgspec.json.encode(head), indent=2).removesuffix(b"\n}")
    pieces = [opening + b',\n  "items": [']
    offset, crc, held = len(pieces[0]), 0, 0
    handle = files.create(path)
    try:
        for key, block in items:
            before = b",\n" if rows.keys else b"\n"
            rows.add(key, offset + len(before), len(block))
            pieces += (before, block)
            offset += len(before) + len(block)
            held += len(block)
            # Written in pieces: the messages of an entity may be larger than memory.
            if held > _CHUNK_BYTES:
                crc, pieces, held = _flush(files, handle, pieces, crc), [], 0
        pieces.append(b"\n  ]\n}\n" if rows.keys else b"]\n}\n")
        offset += len(pieces[-1])
        crc = _flush(files, handle, pieces, crc)
        # Before state.json can list it. The checksum of the whole file is computed from what was written, not read
        # back.
        files.sync(handle)
    finally:
        files.close(handle)
    return rows, Listed(path, 0, len(rows.keys), offset, f"{crc:08x}")


def _flush(files: Files, handle: int, pieces: list[bytes], crc: int) -> int:
    data = b"".join(pieces)
    files.write(handle, data)
    return zlib.crc32(data, crc)


def read_items(files: Files, path: str, size: int) -> Iterator[tuple[int, bytes]]:
    """Every block of a file with its offset, read in pieces: a file may be larger than memory."""
    base, data = 0, b""
    while base + len(data) < size:
        data += files.read(path, base + len(data), _CHUNK_BYTES)
        end = 0
        # A block that is cut by the end of the piece does not match: it is read again with the next piece. Text inside
        # of a block cannot look like its end, because JSON escapes line breaks.
        for match in _BLOCK.finditer(data):
            end = match.end()
            yield base + match.start(), match.group()
        if not end and len(data) < _CHUNK_BYTES and base + len(data) < size:
            return  # The file became shorter during the read.
        base, data = base + end, data[end:]


def is_as_listed(files: Files, path: str, listed: Listed) -> bool:
    # The size first: it costs nothing, and finds most truncated files.
    if files.size(path) != listed.bytes:
        return False
    crc = 0
    for offset in range(0, listed.bytes, _CHUNK_BYTES):
        crc = zlib.crc32(files.read(path, offset, _CHUNK_BYTES), crc)
    return f"{crc:08x}" == listed.crc


def blame(files: Files, path: str, listed: Listed) -> StoreDamaged:
    """The error for a file that is not as listed, with the first line that is wrong."""
    size = files.size(path)
    if size < 0:
        return damaged(path, 0, "it is missing")
    count = 0
    end = 0
    for offset, block in read_items(files, path, size):
        if not is_whole(block):
            return damaged(path, line_at(files, path, offset), ITEM)
        count += 1
        end = offset + len(block)
    if count != listed.items:
        return damaged(path, line_at(files, path, end), f"up to there {count} items are whole, of {listed.items}")
    return damaged(path, 1, "something around its items is not what was written")


def line_at(files: Files, path: str, offset: int) -> int:
    count = 1
    for start in range(0, offset, _CHUNK_BYTES):
        count += files.read(path, start, min(_CHUNK_BYTES, offset - start)).count(b"\n")
    return count
