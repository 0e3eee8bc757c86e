# mypyc: compiled
"""LIKE: a pattern in which % matches any text and _ any one character; case matters.

A pattern is split at its %: the first piece must begin the text, the last one end it, and each in between is matched
where it first occurs after the one before. The first occurrence is always sufficient, so there is no backtracking. A
piece with a _ is searched by the bitap algorithm: one bit for each of its characters, all compared at once. So whatever
the pattern and the text, a match takes at most one step for each character, and a few for each piece.
"""

from typing import Final, final

from mypy_extensions import i64

_PIECE_STEPS: Final = 2


@final
class LikePiece:
    """A sequence of characters; None matches any character."""

    def __init__(self, characters: list[str | None]) -> None:
        self.length: i64 = len(characters)
        self.open = [at for at, character in enumerate(characters) if character is None]
        # For a comparison of the whole piece; open positions are NUL.
        self.text = "".join(["\0" if character is None else character for character in characters])
        self._any = 0
        self._masks: dict[str, int] = {}
        self._last = 0
        if self.open:
            self._make_masks(characters)

    def _make_masks(self, characters: list[str | None]) -> None:
        for at, character in enumerate(characters):
            if character is None:
                self._any |= 1 << at
            else:
                self._masks[character] = self._masks.get(character, 0) | 1 << at
        self._last = 1 << (len(characters) - 1)

    def fits_at(self, text: str, start: i64) -> bool:
        """Whether the text has the piece at exactly this position. The caller has checked the length."""
        if not self.open:
            return text.startswith(self.text, start)
        parts = list(text[start : start + self.length])
        for at in self.open:
            parts[at] = "\0"
        return "".join(parts) == self.text

    def find(self, text: str, start: i64, end: i64) -> i64:
        """Where the piece first occurs and ends before `end`; -1 if it does not."""
        if not self.open:
            return text.find(self.text, start, end)
        state = 0
        at = start
        while at < end:
            state = (state << 1 | 1) & (self._masks.get(text[at], 0) | self._any)
            at += 1
            if state & self._last:
                return at - self.length
        return -1


@final
class Likeness:
    """A compiled pattern. Raises ValueError if it ends with its escape character."""

    def __init__(self, pattern: str, escape: str = "") -> None:
        pieces = _pieces(pattern, escape)
        self._first = pieces[0]
        self._last = pieces[-1]
        self._middle = [piece for piece in pieces[1:-1] if piece.length]
        self._anchored = len(pieces) == 1
        self._shortest: i64 = sum([piece.length for piece in pieces])

    def matches(self, text: str) -> bool:
        return self.walk(text) > 0

    def walk(self, text: str) -> i64:
        """The number of steps, counted in characters; negative if the text does not match."""
        size: i64 = len(text)
        steps: i64 = _PIECE_STEPS + self._first.length
        if size < self._shortest or (self._anchored and size != self._shortest):
            return -1
        if not self._first.fits_at(text, 0):
            return -steps
        if self._anchored:
            return steps
        end = size - self._last.length
        steps += _PIECE_STEPS + self._last.length
        if not self._last.fits_at(text, end):
            return -steps
        at = self._first.length
        for piece in self._middle:
            found = piece.find(text, at, end)
            if found < 0:
                return -(steps + _PIECE_STEPS + end - at)
            steps += _PIECE_STEPS + found + piece.length - at
            at = found + piece.length
        return steps


def _pieces(pattern: str, escape: str) -> list[LikePiece]:
    pieces: list[LikePiece] = []
    piece: list[str | None] = []
    escaped = False
    for character in pattern:
        if escaped:
            piece.append(character)
            escaped = False
        elif character == escape:
            escaped = True
        elif character == "%":
            pieces.append(LikePiece(piece))
            piece = []
        else:
            piece.append(None if character == "_" else character)
    if escaped:
        raise ValueError("the pattern ends with its escape character")
    pieces.append(LikePiece(piece))
    return pieces
