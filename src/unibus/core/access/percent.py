# mypyc: compiled
"""Percent-encoding as in HTML forms: a space is a plus. Own code, because `core` must not import urllib.

Strict where the standard library is lenient: an incomplete escape, or bytes that are not UTF-8, are an error. A text
with two readings must not decide about access.
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
    """The text without escapes, or None if an escape is invalid. `plus` is what a plus means."""
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
