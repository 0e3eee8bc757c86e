"""What is wrong with a body, in words that show only a little of it: a description is logged and stored.

each error        at most _TEXT_CHARS_MAX characters
each value in it  at most VALUE_CHARS_MAX: what is quoted, and every long run without a space
its place         kept, because it names the field: `Order.items[2].price`, or `- at $.items[2].price`
"""

import re

from unibus.safe_log import type_name

VALUE_CHARS_MAX = 80
_TEXT_CHARS_MAX = 200

# 81: one more than VALUE_CHARS_MAX. Libraries quote the value that did not fit, which may be secret or large.
_QUOTED = re.compile(r"""'[^']{81,}'|"[^"]{81,}"|`[^`]{81,}`""", re.DOTALL)
_RUN = re.compile(r"\S{81,}")
_TWO_PATHS = re.compile(r" - at `\$([^`]*)` - at `\$([^`]*)`")
_PATH = re.compile(r"( - at `[^`]*`( in `[^`]*`)?)+$")


class Described(ValueError):
    """An error whose text is short already. msgspec adds the place of the value to it."""


def shortened(text: str) -> str:
    """The text of one error, without the rest of long values in it."""
    return cut(_RUN.sub(_cut_match, _QUOTED.sub(_cut_match, text)), _TEXT_CHARS_MAX)


def cut(text: str, chars_max: int = VALUE_CHARS_MAX) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def described(error: BaseException) -> str:
    """The error of a conversion: of msgspec, or of the user's validation code. Never raises."""
    try:
        return _described(error)
    except Exception as broken:  # Raised by a method of the exception.
        return f"{type_name(error)} (no text: {type_name(broken)})"


def _described(error: BaseException) -> str:
    text, cause = str(error), error.__cause__
    if isinstance(error, Described) or isinstance(cause, Described):
        return merged_paths(text)
    if cause is not None and text.startswith(str(cause)):  # msgspec repeats a ValueError of the user, with the place.
        return shortened(_said(cause)) + merged_paths(text[len(str(cause)) :])
    # The place is kept whole, and only the text before it is shortened: the name of the field is what helps.
    path = _PATH.search(text)
    place = path.group() if path else ""
    return shortened(_said(error) if not place else text[: -len(place)]) + merged_paths(place)


def merged_paths(text: str) -> str:
    """`at $.price - at $.items[2]`, written from the inside to the outside, as one path: `at $.items[2].price`."""
    while (merged := _TWO_PATHS.sub(r" - at `$\2\1`", text)) != text:
        text = merged
    return text


def _said(error: BaseException) -> str:
    """Validators of attrs raise errors with further arguments: the attribute, the value. The first one is the text. The
    class is named where the text alone says little: KeyError('id')."""
    first = error.args[0] if error.args else ""
    text = first if isinstance(first, str) else str(error)
    return text if isinstance(error, (ValueError, TypeError)) and text else f"{type(error).__name__}: {text}"


def _cut_match(match: re.Match[str]) -> str:
    found = match.group()
    return cut(found, VALUE_CHARS_MAX - 1) + found[-1] if found[0] in "'\"`" else cut(found)
