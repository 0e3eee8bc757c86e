"""The ids and timestamps of messages.

`core` has no clock and no random numbers of its own. The bus passes an `IdGenerator`: a random prefix that it drew
once, a counter, and its wall clock.

    id = prefix + counter in hexadecimal      unique, because the prefix is unique to the generator

The text of an id is only built when it is read: drawing and formatting a random id for each message would cost ten
times as much as the publish itself.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64


def _no_time() -> int:
    return 0


@final
class IdGenerator:
    """`prefix` must be unique to this generator; ids are the prefix followed by a counter in hexadecimal."""

    def __init__(self, prefix: str, wall_ns: Callable[[], object]) -> None:
        self.prefix = prefix
        self.wall_ns = wall_ns  # Returns an int. Typed as object, so that compiled code does not unpack it.
        self.number: i64 = 0

    def next_number(self) -> i64:
        self.number += 1
        return self.number


_TAIL_BITS: Final = 12
_TAILS: Final[list[str]] = [f"{number:03x}" for number in range(1 << _TAIL_BITS)]


@final
class _Head:
    """The part that 4,096 consecutive ids share. Immutable: threads share it, and one replaces it as a whole."""

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
    """The prefix and the number in hexadecimal. Formatting the whole id every time costs as much as storing a message,
    so the head is cached and the tail comes from a table."""
    high = number >> _TAIL_BITS
    head = _last.head
    if head.high != high or head.prefix is not prefix:
        head = _Head(prefix, high)
        _last.head = head
    tail = _TAILS[number & (1 << _TAIL_BITS) - 1]
    return head.text + (tail if high else tail.lstrip("0") or "0")


_id_generator = IdGenerator("", _no_time)


def set_default_id_generator(id_generator: IdGenerator) -> None:
    """The bus package calls it at import, and again in a forked child: for messages that are created outside of a bus.
    A child with the generator of its parent would create the same ids."""
    global _id_generator
    _id_generator = id_generator


def default_id_generator() -> IdGenerator:
    return _id_generator
