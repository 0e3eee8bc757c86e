"""Lock tokens: random, so that no lock of an earlier life of a store has the same one.

    byte 0        0: reserved. A later version may tell by it which of several owners has made the lock.
    bytes 1-15    random; 120 bits cannot be guessed

A store of an earlier version has tokens with any first byte. They are compared like the others.
"""

import os
from typing import Final

TOKEN_BYTES: Final = 16
_DRAWN: Final = 256


class Tokens:
    """Drawn many at a time: asking the system for each would cost more than the lock."""

    def __init__(self) -> None:
        self._left: list[bytes] = []

    def draw(self) -> bytes:
        if not self._left:
            reserved = bytearray(os.urandom(TOKEN_BYTES * _DRAWN))
            reserved[::TOKEN_BYTES] = bytes(_DRAWN)
            drawn = bytes(reserved)
            self._left = [drawn[at : at + TOKEN_BYTES] for at in range(0, len(drawn), TOKEN_BYTES)]
        return self._left.pop()
