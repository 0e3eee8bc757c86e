"""The texts of CloudEvents 1.0: which text an attribute may hold, how headers escape it, and how instants are written.

Pure functions; what is wrong with a text that came from outside is a CloudEventInvalid.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from unibus.errors import CloudEventInvalid

_NAME: Final = re.compile(r"[a-z0-9]+")
_URI: Final = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
# Control characters, surrogates, and what Unicode calls noncharacters below U+10000.
_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_PERCENT: Final = re.compile(r"%([0-9A-Fa-f]{2})?")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_INSTANT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:)(\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)",
    re.ASCII,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def is_attribute_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_attribute_text(text: str) -> bool:
    """Whether the specification's type String may hold it."""
    if text.isascii():
        return text.isprintable()
    return _FORBIDDEN.search(text) is None and all([ord(letter) & 0xFFFE != 0xFFFE for letter in text])


def is_uri_reference(text: str) -> bool:
    """As far as the letters tell."""
    return _URI.fullmatch(text) is not None


def percent_encoded(text: str) -> str:
    """Printable ASCII stays, but for space, double quote and percent."""
    return "".join([_letter(letter) for letter in text])


def _letter(letter: str) -> str:
    if "!" <= letter <= "~" and letter not in '"%':
        return letter
    return "".join([f"%{byte:02X}" for byte in letter.encode("utf-8", "replace")])


def header_text(name: str, value: str) -> str:
    """The attribute that a header's value stands for: quotes are taken off, then percent signs are read once."""
    quoted = _QUOTED.fullmatch(value)
    if quoted is not None:
        value = re.sub(r"\\(.)", r"\1", quoted.group(1))
    if "%" not in value:
        return value
    raw = bytearray()
    at = 0
    for found in _PERCENT.finditer(value):
        if found.group(1) is None:
            raise CloudEventInvalid(f"ce-{name} has a lone %", "two hexadecimal digits follow, %25 is the sign itself")
        raw += value[at : found.start()].encode() + bytes.fromhex(found.group(1))
        at = found.end()
    try:
        return (raw + value[at:].encode()).decode("utf-8")
    except UnicodeError as error:
        raise CloudEventInvalid(f"ce-{name} is no UTF-8 after its percent signs are read", f"{error}") from error


def instant_text(instant_ns: int) -> str:
    """RFC 3339 in UTC, to the nanosecond; no more digits than it takes."""
    seconds, nanoseconds = divmod(instant_ns, 1_000_000_000)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
    return f"{text.rjust(19, '0')}{fraction}Z"


def instant_ns(name: str, value: object) -> int:
    """Nanoseconds since 1970. What is finer is cut off; a leap second is the second after it."""
    found = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise _no_instant(name, value)
    day, minute, second, fraction, zone = found.groups()
    leap = second == "60"
    try:
        whole = datetime.fromisoformat(f"{day}T{minute}{'59' if leap else second}{zone.upper().replace('Z', '+00:00')}")
    except ValueError as error:
        raise _no_instant(name, value) from error
    elapsed = whole - _EPOCH
    seconds = elapsed.days * 86_400 + elapsed.seconds + (1 if leap else 0)
    return seconds * 1_000_000_000 + (0 if leap else int((fraction or "0")[:9].ljust(9, "0")))


def _no_instant(name: str, value: object) -> CloudEventInvalid:
    return CloudEventInvalid(
        f"{name} is {value!r:.60}, and no instant", "RFC 3339 with a time zone: 2026-01-31T12:00:00Z"
    )
