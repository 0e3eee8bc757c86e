"""Who gives a message its id and its time.

Core has no clock and no chance of its own. A stamper is lent to it: a random prefix that the shell drew once,
a counter, and the shell's wall clock. The id's text is only made when somebody reads it: drawing and
formatting a random id for each message would cost ten times the publish itself.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64


def _no_time() -> int:
    return 0


@final
class IdGenerator:
    """`prefix` must be unique to this stamper; ids are the prefix followed by a counter in hexadecimal."""

    def __init__(self, prefix: str, wall_ns: Callable[[], object]) -> None:
        self.prefix = prefix
        self.wall_ns = wall_ns  # Gives an int. Typed loosely, so that compiled code keeps the object as it comes.
        self.number: i64 = 0

    def next_number(self) -> i64:
        self.number += 1
        return self.number


_TAIL_BITS: Final = 12
_TAILS: Final[list[str]] = [f"{number:03x}" for number in range(1 << _TAIL_BITS)]


@final
class _Head:
    """The part of an id that many have in common. Never changed, only replaced: threads share it."""

    def __init__(self, prefix: str, high: i64) -> None:
        self.prefix = prefix
        self.high = high
        self.text = f"{prefix}{high:x}" if high else prefix


@final
class _Last:
    def __init__(self) -> None:
        self.head = _Head("", 0)


_last: Final = _Last()


def id_text(prefix: str, number: i64) -> str:
    """The prefix and the number in hexadecimal. Formatting each one anew would cost as much as storing a message."""
    high = number >> _TAIL_BITS
    head = _last.head
    if head.high != high or head.prefix is not prefix:
        head = _Head(prefix, high)
        _last.head = head
    tail = _TAILS[number & (1 << _TAIL_BITS) - 1]
    return head.text + (tail if high else tail.lstrip("0") or "0")


_id_generator = IdGenerator("", _no_time)


def set_default_id_generator(id_generator: IdGenerator) -> None:
    """Called once by the shell at import (and again in a forked child), for messages made outside of a bus."""
    global _id_generator
    _id_generator = id_generator


def default_id_generator() -> IdGenerator:
    return _id_generator
