"""Checks the bloom filters of a Parquet file: whether a text can be in a column, so that most row groups are not read.

The filter is the split block bloom filter of the Parquet specification, over XXH64. Only reading: Arrow writes them. A
filter that is missing, or in a form that is not known here, counts as "perhaps".
"""

from typing import BinaryIO, Final

import pyarrow.parquet as pq

_WORD: Final = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SALTS: Final = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)
_BLOCK_BYTES: Final = 32
_INT_FIELD_1: Final = 0x15
"""The first byte of the header: an i32 in Thrift's compact protocol, which is the size of the filter."""


def groups_that_may_hold(file: BinaryIO, metadata: pq.FileMetaData, column: str, text: str) -> list[int]:
    """The row groups whose column may have that value."""
    place = _place(metadata, column)
    if place is None:
        return list(range(metadata.num_row_groups))
    hashed = xxh64(text.encode("utf-8", "surrogatepass"))
    return [
        at for at in range(metadata.num_row_groups) if _may_hold(file, metadata.row_group(at).column(place), hashed)
    ]


def _place(metadata: pq.FileMetaData, column: str) -> int | None:
    if not metadata.num_row_groups:
        return None
    group = metadata.row_group(0)
    return next((at for at in range(group.num_columns) if group.column(at).path_in_schema == column), None)


def _may_hold(file: BinaryIO, chunk: pq.ColumnChunkMetaData, hashed: int) -> bool:
    offset, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
    if not offset or not length:
        return True
    file.seek(offset)
    data = file.read(length)
    size = _size(data)
    if size is None:
        return True
    bits = data[len(data) - size :]
    block = ((hashed >> 32) * (size // _BLOCK_BYTES)) >> 32
    key = hashed & 0xFFFFFFFF
    for word, salt in enumerate(_SALTS):
        at = block * _BLOCK_BYTES + word * 4
        bit = ((key * salt) & 0xFFFFFFFF) >> 27
        if not int.from_bytes(bits[at : at + 4], "little") >> bit & 1:
            return False
    return True


def _size(data: bytes) -> int | None:
    """The size of the filter after the header; None for an unknown header."""
    if len(data) < 3 or data[0] != _INT_FIELD_1:
        return None
    number, shift = 0, 0
    for byte in data[1:6]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    size = number >> 1  # A positive number, in Thrift's zigzag.
    return size if size and size % _BLOCK_BYTES == 0 and size < len(data) else None


def xxh64(data: bytes) -> int:
    """XXH64 with seed 0."""
    length, at = len(data), 0
    if length >= 32:
        lanes = [_P1 + _P2 & _WORD, _P2, 0, -_P1 & _WORD]
        while at <= length - 32:
            lanes = [_round(lane, _number(data, at + 8 * place, 8)) for place, lane in enumerate(lanes)]
            at += 32
        total = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _WORD
        for lane in lanes:
            total = (total ^ _round(0, lane)) * _P1 + _P4 & _WORD
    else:
        total = _P5
    return _mixed(_rest(data, at, total + length & _WORD))


def _rest(data: bytes, at: int, total: int) -> int:
    while at + 8 <= len(data):
        total = _turned(total ^ _round(0, _number(data, at, 8)), 27) * _P1 + _P4 & _WORD
        at += 8
    if at + 4 <= len(data):
        total = _turned(total ^ _number(data, at, 4) * _P1 & _WORD, 23) * _P2 + _P3 & _WORD
        at += 4
    for byte in data[at:]:
        total = _turned(total ^ byte * _P5 & _WORD, 11) * _P1 & _WORD
    return total


def _mixed(total: int) -> int:
    total = (total ^ total >> 33) * _P2 & _WORD
    total = (total ^ total >> 29) * _P3 & _WORD
    return total ^ total >> 32


def _round(lane: int, word: int) -> int:
    return _turned(lane + word * _P2 & _WORD, 31) * _P1 & _WORD


def _turned(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & _WORD


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
