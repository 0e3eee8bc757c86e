"""The pattern of a subscription: one name, every name with a prefix, or a wildcard pattern of dotted tokens.

    exact      the name itself
    prefix     the first bytes of the name, compared as they were published; the empty prefix is everything
    wildcard   tokens separated by dots:   *  exactly one token, any
                                           #  zero or more tokens, only at the end (as in AMQP)
                                           >  one or more tokens, only at the end (as in NATS)

So `a.#` matches `a`, `a.b` and `a.b.c`; `a.>` matches all but the first; `a.*` matches only `a.b`. An empty token in a
name (`a..b`) is a token like any other; in a pattern it is rejected, because there it is a typing error.

A Pattern always has an explicit kind. `subscribe` also takes a plain text, and treats one with a wildcard as a pattern:
`is_wildcard` has the rule. A wildcard is a whole token, so `C#`, `a>b` and `a*` are plain names, and a prefix may
contain any byte.

Text means its UTF-8 bytes. Bytes that are not UTF-8 are represented in text as lone surrogates (PEP 383), so that both
spellings of a name match the same subscribers.
"""

from typing import Final, final

from unibus.display import guarded
from unibus.errors import NameInvalid
from unibus.limits import CHANNEL_NAME_BYTES_MAX

EXACT: Final = "exact"
PREFIX: Final = "prefix"
WILDCARD: Final = "wildcard"

SEPARATOR: Final = "."
ONE_TOKEN: Final = "*"
TAIL: Final = "#"
TAIL_SOME: Final = ">"


def name_bytes(name: str | bytes) -> bytes:
    """The bytes under which a name is published. Raises NameInvalid for text that has no bytes."""
    if isinstance(name, bytes):
        return name
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise NameInvalid(f"{name!r} cannot be written as UTF-8", "remove the lone surrogate characters") from None


def name_text(name: str | bytes) -> str:
    """The text of a name; every byte string has one."""
    if isinstance(name, str):
        return name
    return name.decode("utf-8", "surrogateescape")


def is_wildcard(name: str) -> bool:
    """Whether a text without a kind is a wildcard pattern: one of its tokens is `*`, or the last one is `#` or `>`."""
    if ONE_TOKEN not in name and not name.endswith((TAIL, TAIL_SOME)):
        return False
    tokens = name.split(SEPARATOR)
    return ONE_TOKEN in tokens or tokens[-1] in (TAIL, TAIL_SOME)


@final
class Pattern:
    """One pattern: checked when created, and immutable. Equal if kind and text are equal.

    `text` is bytes for a prefix and str for the other kinds, however it was given. Raises NameInvalid for a pattern
    that is invalid, or longer than the longest name: it could match nothing.
    """

    __slots__ = ("_kind", "_text")

    def __init__(self, kind: str, text: str | bytes) -> None:
        raw = name_bytes(text)
        if len(raw) > CHANNEL_NAME_BYTES_MAX:
            raise NameInvalid(
                f"a pattern of {len(raw)} bytes is longer than any name",
                f"use at most {CHANNEL_NAME_BYTES_MAX} bytes",
            )
        self._kind = kind
        self._text: str | bytes = raw
        if kind == PREFIX:
            return
        # Decoded from the bytes, so that two spellings of the same bytes are one pattern.
        plain = name_text(raw)
        self._text = plain
        if kind == EXACT:
            _check_exact(plain)
        elif kind == WILDCARD:
            _check_wildcard(plain)
        else:
            raise NameInvalid(f"unknown kind of pattern {kind!r}", f"use {EXACT}, {PREFIX} or {WILDCARD}")

    @staticmethod
    def exact(name: str | bytes) -> "Pattern":
        return Pattern(EXACT, name)

    @staticmethod
    def prefix(start: str | bytes) -> "Pattern":
        return Pattern(PREFIX, start)

    @staticmethod
    def wildcard(tokens: str | bytes) -> "Pattern":
        return Pattern(WILDCARD, tokens)

    @property
    def kind(self) -> str:
        return self._kind

    @property
    def text(self) -> str | bytes:
        return self._text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pattern):
            return NotImplemented
        return self._kind == other._kind and self._text == other._text

    def __hash__(self) -> int:
        return hash((self._kind, self._text))

    def __repr__(self) -> str:
        return guarded(self, lambda: f"Pattern.{self._kind}({self._text!r})")


def _check_exact(name: str) -> None:
    if not name:
        raise NameInvalid("an exact pattern needs a name", "to match everything, use the empty prefix")


def _check_wildcard(text: str) -> None:
    tokens = text.split(SEPARATOR)
    last = len(tokens) - 1
    for place, token in enumerate(tokens):
        if not token:
            raise NameInvalid(
                f"wildcard pattern {text!r} has an empty token", f"to match everything, use {TAIL!r}; drop doubled dots"
            )
        if token in (TAIL, TAIL_SOME):
            if place != last:
                raise NameInvalid(
                    f"{token!r} must be the last token of pattern {text!r}", f"in other places, use {ONE_TOKEN!r}"
                )
        elif token != ONE_TOKEN and (ONE_TOKEN in token or TAIL in token or TAIL_SOME in token):
            raise NameInvalid(
                f"token {token!r} of {text!r} mixes letters and wildcards",
                "a wildcard is a whole token; for names that start alike, use a prefix",
            )
