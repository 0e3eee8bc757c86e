"""The text rules of CloudEvents 1.0: valid attribute text, the escapes of HTTP headers, and RFC 3339 instants.

Pure functions; wrong input from outside raises CloudEventInvalid.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from unibus.errors import CloudEventInvalid

# CloudEvents 1.0, names of attributes: lower-case letters and digits of ASCII.
_NAME: Final = re.compile(r"[a-z0-9]+")
_URI: Final = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
# Control characters, surrogates, and the Unicode noncharacters below U+10000 (CloudEvents 1.0, type String).
_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
# The group is optional, so that a % without digits is found, and refused.
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
    """Whether the text is valid for the type String of the specification."""
    # The fast path: for ASCII, printable is exactly what the specification allows.
    if text.isascii():
        return text.isprintable()
    # The last two code points of each plane are noncharacters, too: U+1FFFE, U+1FFFF, U+2FFFE …
    return _FORBIDDEN.search(text) is None and all([ord(character) & 0xFFFE != 0xFFFE for character in text])


def is_uri_reference(text: str) -> bool:
    """Whether the text has only characters of a URI reference; its structure is not checked."""
    return _URI.fullmatch(text) is not None


def percent_encoded(text: str) -> str:
    """The text with percent escapes for everything but printable ASCII, and for space, double quote and percent."""
    return "".join([_escaped(character) for character in text])


def _escaped(character: str) -> str:
    # HTTP binding, section 3.1.3.2: these two, and everything outside of U+0021 to U+007E, must be encoded.
    if "!" <= character <= "~" and character not in '"%':
        return character
    return "".join([f"%{byte:02X}" for byte in character.encode("utf-8", "replace")])


def header_text(name: str, value: str) -> str:
    """The attribute value of a header: quotes are removed, then percent escapes are decoded once."""
    quoted = _QUOTED.fullmatch(value)
    if quoted is not None:
        value = re.sub(r"\\(.)", r"\1", quoted.group(1))
    if "%" not in value:
        return value
    # As bytes: an escape is one byte of UTF-8, and a character may need several of them.
    raw = bytearray()
    at = 0
    for found in _PERCENT.finditer(value):
        if found.group(1) is None:
            raise CloudEventInvalid(
                f"ce-{name} has a % without two hexadecimal digits", "write %25 for the percent sign itself"
            )
        raw += value[at : found.start()].encode() + bytes.fromhex(found.group(1))
        at = found.end()
    try:
        return (raw + value[at:].encode()).decode("utf-8")
    except UnicodeError as error:
        raise CloudEventInvalid(f"the percent escapes of ce-{name} are not valid UTF-8", f"{error}") from error


def instant_text(instant_ns: int) -> str:
    """RFC 3339 in UTC, to the nanosecond, without trailing zeros."""
    seconds, nanoseconds = divmod(instant_ns, 1_000_000_000)
    # By timedelta and not fromtimestamp: that is a float, and the platform may limit its range.
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
    # strftime of some platforms writes the year 999 with three digits.
    return f"{text.rjust(19, '0')}{fraction}Z"


def instant_ns(name: str, value: object) -> int:
    """Nanoseconds since 1970. Finer digits are truncated; a leap second counts as the following second."""
    found = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise _invalid_instant(name, value)
    day, minute, second, fraction, zone = found.groups()
    # RFC 3339, section 5.7, allows a leap second, and datetime does not.
    leap = second == "60"
    try:
        whole = datetime.fromisoformat(f"{day}T{minute}{'59' if leap else second}{zone.upper().replace('Z', '+00:00')}")
    except ValueError as error:
        raise _invalid_instant(name, value) from error
    elapsed = whole - _EPOCH
    seconds = elapsed.days * 86_400 + elapsed.seconds + (1 if leap else 0)
    return seconds * 1_000_000_000 + (0 if leap else int((fraction or "0")[:9].ljust(9, "0")))


def _invalid_instant(name: str, value: object) -> CloudEventInvalid:
    return CloudEventInvalid(
        f"{name} is {value!r:.60}, which is not an instant", "use RFC 3339 with a time zone: 2026-01-31T12:00:00Z"
    )
