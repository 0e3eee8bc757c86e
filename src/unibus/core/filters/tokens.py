# mypyc: compiled
"""Splits the text of a filter into tokens, each with its position; and reports mistakes in a text.

Every character is read once. A mistake always has a position, counted from 0, and a hint that says what to write
instead: people write filters, often through several layers of other programs.
"""

import difflib
from typing import Final, final

from mypy_extensions import i64

from unibus.errors import FilterInvalid

KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "IS", "NULL", "IN", "LIKE", "ESCAPE", "EXISTS", "TRUE", "FALSE"})
"""These are not names of properties, unless in [brackets]. They may be written in any case."""

NAME: Final = 1  # A name without brackets or quotes.
QUOTED: Final = 2  # A name in brackets or double quotes.
KEYWORD: Final = 3
TEXT: Final = 4
INTEGER: Final = 5
DOUBLE: Final = 6
PARAMETER: Final = 7
SIGN: Final = 8
END: Final = 9

_SIGNS_OF_TWO: Final = frozenset({"<>", "!=", "<=", ">="})
_SIGNS: Final = frozenset("=<>+-*/%(),.;")
_INSTEAD: Final[dict[str, str]] = {
    "==": "one = compares",
    "&&": "write AND",
    "||": "write OR, or + to join texts",
    "=>": "write >=",
    "=<": "write <=",
    "&": "write AND",
    "|": "write OR",
    "!": "write NOT, or <> for unequal",
    "{": "write names with other characters in [brackets]",
    "`": "write names with other characters in [brackets]",
    "#": "write names with other characters in [brackets]",
    "$": "write names with other characters in [brackets]",
    "_": "a name begins with a letter; write other names in [brackets]",
    "’": "write texts in straight quotes: 'red'",
    "‘": "write texts in straight quotes: 'red'",
}


@final
class FilterToken:
    """`text` is its meaning: a keyword in capitals, a name without its brackets, a text without its quotes."""

    __slots__ = ("kind", "position", "text")

    def __init__(self, kind: i64, text: str, position: i64) -> None:
        self.kind = kind
        self.text = text
        self.position = position

    def is_sign(self, sign: str) -> bool:
        return self.kind == SIGN and self.text == sign

    def is_keyword(self, word: str) -> bool:
        return self.kind == KEYWORD and self.text == word

    def __repr__(self) -> str:
        return f"<Token {self.text!r} at {self.position}>"


def invalid(what: str, position: i64, hint: str) -> FilterInvalid:
    """The error of a mistake. In the message positions count from 1, for people."""
    return FilterInvalid(f"{what} at character {position + 1}", hint, position)


def near(word: str, choices: frozenset[str], otherwise: str) -> str:
    """A hint with the choice that is most similar to the word, or `otherwise`."""
    spellings = {choice.upper(): choice for choice in sorted(choices)}
    close = difflib.get_close_matches(word.upper()[:40], list(spellings), 1, 0.6)
    return f"did you mean {spellings[close[0]]}?" if close else otherwise


def tokenize(text: str) -> list[FilterToken]:
    """All tokens, and then an END."""
    scanner = Scanner(text)
    tokens: list[FilterToken] = []
    while True:
        token = scanner.next()
        tokens.append(token)
        if token.kind == END:
            return tokens


@final
class Scanner:
    """`at` is the next character; two NULs are appended to the text, so that looking ahead stays within it."""

    __slots__ = ("_length", "_text", "at")

    def __init__(self, text: str) -> None:
        self._text = text + "\0\0"
        self._length: i64 = len(text)
        self.at: i64 = 0

    def next(self) -> FilterToken:
        while self.at < self._length and self._text[self.at].isspace():
            self.at += 1
        start = self.at
        if start >= self._length:
            return FilterToken(END, "", start)
        first = self._text[start]
        if first.isalpha():
            return self._name(start)
        if _is_digit(first) or (first == "." and _is_digit(self._text[start + 1])):
            return self._number(start)
        if first == "'":
            return FilterToken(TEXT, self._enclosed("'", "text", start), start)
        if first == "[":
            return self._quoted("]", start)
        if first == '"':
            return self._quoted('"', start)
        return self._parameter(start) if first == "@" else self._sign(first, start)

    def _name(self, start: i64) -> FilterToken:
        self._skip_word()
        word = self._text[start : self.at]
        return FilterToken(KEYWORD, word.upper(), start) if is_keyword(word) else FilterToken(NAME, word, start)

    def _skip_word(self) -> None:
        while self.at < self._length and _continues_name(self._text[self.at]):
            self.at += 1

    def _number(self, start: i64) -> FilterToken:
        kind: i64 = INTEGER
        self._skip_digits()
        if self._text[self.at] == ".":
            kind = DOUBLE
            self.at += 1
            self._skip_digits()
        if self._text[self.at] in "eE" and self._has_exponent():
            kind = DOUBLE
            self.at += 2
            self._skip_digits()
        if self.at < self._length and _continues_name(self._text[self.at]):
            raise self._misnamed(start)
        return FilterToken(kind, self._text[start : self.at], start)

    def _has_exponent(self) -> bool:
        after = self._text[self.at + 1]
        return _is_digit(after) or (after in "+-" and _is_digit(self._text[self.at + 2]))

    def _skip_digits(self) -> None:
        while _is_digit(self._text[self.at]):
            self.at += 1

    def _misnamed(self, start: i64) -> FilterInvalid:
        self._skip_word()
        word = self._text[start : self.at]
        if word[:2] in ("0x", "0X"):
            return invalid(f"{word[:40]!r} is not a number", start, "the language has no hexadecimal numbers")
        return invalid(f"{word[:40]!r} is neither a number nor a name", start, "write such a name in [brackets]")

    def _quoted(self, close: str, start: i64) -> FilterToken:
        name = self._enclosed(close, "name", start)
        if not name:
            raise invalid("the name is empty", start, "write texts in single quotes: ''")
        return FilterToken(QUOTED, name, start)

    def _enclosed(self, close: str, what: str, start: i64) -> str:
        """The text up to the closing character; doubled, that character is part of the text."""
        parts: list[str] = []
        begin = start + 1
        while True:
            end: i64 = self._text.find(close, begin, self._length)
            if end < 0:
                raise invalid(f"the {what} is not closed: it begins", start, f"close it with {close}")
            parts.append(self._text[begin:end])
            self.at = end + 1
            if self.at >= self._length or self._text[self.at] != close:
                return close.join(parts)
            begin = self.at + 1

    def _parameter(self, start: i64) -> FilterToken:
        self.at += 1
        self._skip_word()
        if self.at == start + 1:
            raise invalid("the parameter has no name", start, "write @ and a name, for instance @limit")
        return FilterToken(PARAMETER, self._text[start + 1 : self.at], start)

    def _sign(self, first: str, start: i64) -> FilterToken:
        two = self._text[start : start + 2]
        if two in _INSTEAD:
            raise invalid(f"{two!r} is not an operator", start, _INSTEAD[two])
        if two in _SIGNS_OF_TWO:
            self.at += 2
            return FilterToken(SIGN, two, start)
        if first not in _SIGNS:
            hint = _INSTEAD.get(first, "write texts in 'quotes', names with other characters in [brackets]")
            raise invalid(f"{first!r} has no meaning here,", start, hint)
        self.at += 1
        return FilterToken(SIGN, first, start)


def is_keyword(word: str) -> bool:
    # `upper` maps some non-ASCII letters to ASCII ones.
    return word.isascii() and word.upper() in KEYWORDS


def is_regular_name(name: str) -> bool:
    """Whether a name needs no brackets."""
    if not name[:1].isalpha() or is_keyword(name):
        return False
    for character in name:  # noqa: SIM110 - all() would create a generator
        if not _continues_name(character):
            return False
    return True


def _continues_name(character: str) -> bool:
    return character == "_" or character.isalpha() or character.isdecimal()


def _is_digit(character: str) -> bool:
    """A digit of a number. Names may contain the digits of every script."""
    return "0" <= character <= "9"
