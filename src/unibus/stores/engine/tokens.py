"""Lock tokens: random, so that a token from before a restart never equals a new one.

    byte 0        0, reserved: a later version may write there which of several owners made the lock
    bytes 1-15    random: 120 bits cannot be guessed

Tokens of an earlier version have any first byte. They are compared like the others.
"""

import os
from typing import Final

TOKEN_BYTES: Final = 16
_DRAWN: Final = 256


class Tokens:
    """Drawn many at a time: one system call for each token would cost more than the lock itself."""

    def __init__(self) -> None:
        self._left: list[bytes] = []

    def draw(self) -> bytes:
        if not self._left:
            reserved = bytearray(os.urandom(TOKEN_BYTES * _DRAWN))
            reserved[::TOKEN_BYTES] = bytes(_DRAWN)
            drawn = bytes(reserved)
            self._left = [drawn[at : at + TOKEN_BYTES] for at in range(0, len(drawn), TOKEN_BYTES)]
        return self._left.pop()
