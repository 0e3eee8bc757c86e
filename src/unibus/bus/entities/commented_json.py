"""Reads JSON with comments, and records the line of every object and name, so that an error can give the line.

Microsoft's emulator ships a Config.json with `//` comments. Comments are replaced by spaces, so that every character
keeps its position, and the standard library reports syntax errors. A second pass then records the lines. A name that
occurs twice in one object is an error: one of the two values would be lost silently.
"""

import json
import re
from collections.abc import Callable
from typing import Final

from unibus.errors import ConfigInvalid

# A JSON string, so that `//` inside of a string is no comment; or one of the two kinds of comments.
_TEXT_OR_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_NOT_A_LINE_END: Final = re.compile(r"[^\n]")
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_SCALAR: Final = re.compile(r"[^\s,\]}]+")


class LinedObject(dict[str, object]):
    """A JSON object. `line` is the line where it begins, `lines` has the line of each name."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}


def read_json(content: str | bytes) -> object:
    """Parse the document. ConfigInvalid gives the line of an error."""
    try:
        text = without_comments(content if isinstance(content, str) else content.decode("utf-8-sig"))
        # Twice the time of one pass, for a file of some kilobytes. The reader below may then rely on valid JSON.
        json.loads(text)  # Syntax errors are found here, with the texts of the standard library.
        return _Reader(text).value()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigInvalid(f"line {line}: the file is not valid UTF-8", "save it as UTF-8") from error
    except json.JSONDecodeError as error:
        raise ConfigInvalid(
            f"line {error.lineno}: the file is not valid JSON: {error.msg}", "correct that line"
        ) from error
    # Before ValueError, which it is, too.
    except ConfigInvalid:
        raise
    # An integer with thousands of digits, and lists that are nested too deeply.
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"the file is not valid JSON: {error}", "correct the file") from error


def without_comments(text: str) -> str:
    """The text with each comment replaced by spaces: lines and columns do not change."""
    return _TEXT_OR_COMMENT.sub(_blanked, text)


def _blanked(match: re.Match[str]) -> str:
    found = match[0]
    return found if found.startswith('"') else _NOT_A_LINE_END.sub(" ", found)


class _Reader:
    """Parses text that is known to be valid JSON, and records lines."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        # The position up to which line breaks are counted: each character is looked at once, not once for each name.
        self._counted = 0
        self._decode: Callable[[str], object] = json.loads

    def value(self) -> object:
        self._skip(0)
        first = self._text[self._at]
        if first == "{":
            return self._object()
        if first == "[":
            return self._list()
        if first == '"':
            return self._string()
        found = _SCALAR.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return self._decode(found[0])

    def _object(self) -> LinedObject:
        made = LinedObject(self._line_here())
        self._skip(1)
        while self._text[self._at] != "}":
            line = self._line_here()
            name = self._string()
            # The standard library would keep the last of two values without an error.
            if name in made:
                raise ConfigInvalid(
                    f"line {line}: {name!r:.60} occurs twice in one object of the file", "remove one of them"
                )
            self._skip(0)
            self._skip(1)  # The colon.
            made[name], made.lines[name] = self.value(), line
            self._next_item()
        self._at += 1
        return made

    def _list(self) -> list[object]:
        made: list[object] = []
        self._skip(1)
        while self._text[self._at] != "]":
            made.append(self.value())
            self._next_item()
        self._at += 1
        return made

    def _next_item(self) -> None:
        self._skip(0)
        if self._text[self._at] == ",":
            self._skip(1)

    def _string(self) -> str:
        # Comments are spaces by now, so at a quotation mark this matches the string.
        found = _TEXT_OR_COMMENT.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return str(self._decode(found[0]))

    def _skip(self, characters: int) -> None:
        found = _SPACE.match(self._text, self._at + characters)
        assert found is not None
        self._at = found.end()

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line
