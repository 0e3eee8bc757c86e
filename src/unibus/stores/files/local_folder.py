"""Folders by the text that a user gives: a path, or a `file:` URL. Other schemes are refused before anything is made.

To the operating system `s3://bucket/lake` is a path: a folder `s3:` with others in it. A program that makes it reports
success, and the data is where the user never looks. So every function that takes a folder asks here first. A
`pathlib.Path` has lost one of the two slashes, so one is enough to be a scheme. A single letter is a drive of Windows.
"""

import os
import re
from typing import Final
from urllib.parse import unquote, urlsplit

from unibus.errors import UsageError

FILE: Final = "file"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):/")


def scheme_of(place: str) -> str:
    """The scheme of a URL in small letters; "" for a path."""
    found = _SCHEME.match(place)
    return found[1].lower() if found else ""


def local_folder(place: str | os.PathLike[str], what: str) -> str:
    """The path that a path or a `file:` URL names. UsageError for any other scheme; `what` names the folder there."""
    text = os.fspath(place)
    scheme = scheme_of(text)
    if not scheme:
        return text
    if scheme != FILE:
        shown = text if isinstance(place, str) else text.replace(":/", "://", 1)
        raise UsageError(
            f"{what} cannot be at {shown!r}: {scheme}:// is not supported, only folders are",
            "name a folder of this computer, or a mounted one: a path, or file:///path",
        )
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise UsageError(f"{what} cannot be at {text!r}: it names another computer", "file:///path has three slashes")
    return unquote(parts.path)
