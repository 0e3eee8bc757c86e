"""Who gives a message its id and its time.

Core has no clock and no chance of its own. A stamper is lent to it: a random prefix that the shell drew once,
a counter, and the shell's wall clock. The id's text is only made when somebody reads it: drawing and
formatting a random id for each message would cost ten times the publish itself.
"""

from collections.abc import Callable
from typing import final

from mypy_extensions import i64


def _no_time() -> int:
    return 0


@final
class Stamper:
    """`prefix` must be unique to this stamper; ids are the prefix followed by a counter in hexadecimal."""

    def __init__(self, prefix: str, wall_ns: Callable[[], object]) -> None:
        self.prefix = prefix
        self.wall_ns = wall_ns  # Gives an int. Typed loosely, so that compiled code keeps the object as it comes.
        self.number: i64 = 0

    def next_number(self) -> i64:
        self.number += 1
        return self.number


def id_text(prefix: str, number: int) -> str:
    return prefix + hex(number)[2:]  # Compiled, a format would cost several times as much.


_stamper = Stamper("", _no_time)


def lend_stamper(stamper: Stamper) -> None:
    """Called once by the shell at import (and again in a forked child), for messages made outside of a bus."""
    global _stamper
    _stamper = stamper


def lent_stamper() -> Stamper:
    return _stamper
