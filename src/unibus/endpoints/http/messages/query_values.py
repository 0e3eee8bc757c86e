"""Parses and checks values of queries and small JSON bodies: timeouts, counts, modes, sequence numbers."""

import re
from typing import Final

from unibus.endpoints.http.request import Request
from unibus.errors import UsageError

TIMEOUT_S_MAX: Final = 300.0
"""How long one request may wait for a message. A client that wants to wait longer sends another request."""

COUNT_MAX: Final = 1_000
"""Messages in one answer. Bounds the memory of clients, and the time for encoding."""

PEEK_LOCK: Final = "peeklock"
RECEIVE_AND_DELETE: Final = "receiveanddelete"
_INTEGER: Final = re.compile(r"\d{1,19}", re.ASCII)
_DECIMAL: Final = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


def timeout_of(request: Request) -> float:
    """Seconds to wait for a message; 0 without the parameter."""
    text = request.query.get("timeout")
    if text is None:
        return 0.0
    if not _DECIMAL.fullmatch(text) or float(text) > TIMEOUT_S_MAX:
        raise UsageError(f"timeout must be a number of seconds from 0 to {TIMEOUT_S_MAX:g}, got {text!r:.40}")
    return float(text)


def count_of(request: Request, name: str, default: int) -> int:
    text = request.query.get(name)
    return default if text is None else checked_count(name, whole_number(name, text))


def checked_count(name: str, value: float) -> int:
    """A count from 1 to COUNT_MAX. JSON has one type of number: 3.0 is a whole number."""
    if not 1 <= value <= COUNT_MAX or value != int(value):
        raise UsageError(f"{name} must be a whole number from 1 to {COUNT_MAX}, got {value!r:.40}")
    return int(value)


def locks(mode: object, name: str = "mode") -> bool:
    """Whether a receive mode locks the message: PeekLock does (peek_lock too), ReceiveAndDelete does not."""
    word = mode.replace("_", "").replace("-", "").casefold() if isinstance(mode, str) else ""
    if word not in (PEEK_LOCK, RECEIVE_AND_DELETE):
        raise UsageError(f"{name} is {mode!r:.40}, which is no receive mode", "use PeekLock or ReceiveAndDelete")
    return word == PEEK_LOCK


def whole_number(name: str, text: str) -> int:
    number = int(text) if _INTEGER.fullmatch(text) else -1
    if not 0 <= number < 2**63:
        raise UsageError(f"{name} is {text!r:.40}, which is not a whole number", "use 0 or more, without a sign")
    return number


def sequences_of(request: Request) -> list[int]:
    """`sequences=3,7`: sequence numbers of deferred messages."""
    text = request.query.get("sequences", "")
    found = [whole_number("sequences", part.strip()) for part in text.split(",")] if text else []
    if not 1 <= len(found) <= COUNT_MAX:
        raise UsageError(
            f"sequences must have 1 to {COUNT_MAX} sequence numbers, it has {len(found)}", "for instance sequences=3,7"
        )
    return found
