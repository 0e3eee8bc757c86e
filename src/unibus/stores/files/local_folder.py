"""A folder that a user names: a path or a `file:` URL. Other schemes are rejected before anything is created.

To the operating system `s3://bucket/lake` is a path: a folder `s3:` with others in it. A program that creates it
reports success, and the user does not find the data. So every function that takes a folder calls `local_folder` first.
A `pathlib.Path` drops one of the two slashes, so one slash is enough for a scheme. A single letter is a Windows drive.
"""

import os
import re
from typing import Final
from urllib.parse import unquote, urlsplit

from unibus.errors import UsageError

FILE: Final = "file"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):/")


def scheme_of(place: str) -> str:
    """The scheme of a URL in lower case; "" for a path."""
    found = _SCHEME.match(place)
    return found[1].lower() if found else ""


def local_folder(place: str | os.PathLike[str], what: str) -> str:
    """The path of a path or a `file:` URL. Raises UsageError for any other scheme; `what` names the folder in it."""
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
