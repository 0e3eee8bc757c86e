"""Percent-encoded text in addresses, decoded strictly: access must not depend on a text that has two readings."""

from typing import Final

from unibus.errors import DecodeError


def parsed_query(raw: bytes) -> dict[str, str]:
    """The last value of each name. Names are casefolded."""
    return dict(query_pairs(raw)) if raw else {}


def query_pairs(raw: bytes) -> list[tuple[str, str]]:
    """Names (casefolded) and values, in order. A part without a name is ignored."""
    parts = [pair.partition(b"=") for pair in raw.split(b"&")]
    return [(decoded(name, plus=True).casefold(), decoded(value, plus=True)) for name, _, value in parts if name]


_HEX: Final = {f"{byte:02x}".encode(): bytes([byte]) for byte in range(256)} | {
    f"{byte:02X}".encode(): bytes([byte]) for byte in range(256)
}


def decoded(text: bytes, plus: bool = False) -> str:
    """Percent-decoded UTF-8. DecodeError for an incomplete escape, and for bytes that are not UTF-8."""
    if plus and b"+" in text:
        text = text.replace(b"+", b" ")
    try:
        if b"%" not in text:
            return text.decode()
        first, *pieces = text.split(b"%")
        return b"".join([first, *[_byte(piece[:2]) + piece[2:] for piece in pieces]]).decode()
    except (UnicodeDecodeError, KeyError) as error:
        raise DecodeError("the address contains an invalid percent escape", "percent-encode it as UTF-8") from error


def _byte(digits: bytes) -> bytes:
    return _HEX[digits] if digits in _HEX else _HEX[digits.lower()]
