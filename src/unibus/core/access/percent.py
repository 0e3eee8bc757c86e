# mypyc: compiled
"""Percent-encoding, as forms have it: a space is a plus. Written here because urllib is no guest of a pure room.

Strict where the standard library is lenient: half an escape, or bytes that are no UTF-8, are an error. A text that can
be read in two ways must not decide about access.
"""

from typing import Final

_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
_ESCAPES: Final[dict[int, str]] = {
    byte: chr(byte) if byte in _UNRESERVED else "+" if byte == 0x20 else f"%{byte:02X}" for byte in range(256)
}
_DIGITS: Final = "0123456789abcdefABCDEF"
_BYTES: Final[dict[bytes, bytes]] = {
    (high + low).encode(): bytes([int(high + low, 16)]) for high in _DIGITS for low in _DIGITS
}


def escaped(text: str) -> str:
    return "".join([_ESCAPES[byte] for byte in text.encode("utf-8")])


def unescaped(text: str, plus: bytes = b" ") -> str | None:
    """What was escaped, or None if it is no escaped text. `plus` is what a plus stands for."""
    if not text.isascii():
        return None
    pieces = text.encode("ascii").replace(b"+", plus).split(b"%")
    for at in range(1, len(pieces)):
        byte = _BYTES.get(pieces[at][:2])
        if byte is None:
            return None
        pieces[at] = byte + pieces[at][2:]
    try:
        return b"".join(pieces).decode("utf-8")
    except UnicodeDecodeError:
        return None
