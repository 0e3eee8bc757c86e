"""Cursors of outside readers: the positions of processes that follow history beside the owner.

The file of a store has one writer, its owner, and a reader must never make it wait. So a reader writes its position to
a small file of its own, `bus.db-cursors/NAME`, through a temporary file and a rename: another process sees the old or
the new position. It is for display only. A reader keeps the position that it needs after a crash itself, so nothing is
synced here.
"""

import os
import time
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from unibus.safe_log import SafeLogger
from unibus.stores.files.private import make_folder, opener

log = SafeLogger("unibus")

_FRESH: Final = ".new"


class Shown(msgspec.Struct):
    """The content of one cursor file."""

    seq: int
    at_ns: int
    pid: int


def folder_of(path: str) -> str:
    """Beside the real file: the owner and a reader may use different names of it."""
    return f"{os.path.realpath(path)}-cursors"


def show_cursor(path: str, name: str, seq: int) -> None:
    """Write the position. Raises OSError if the folder cannot be written."""
    folder = folder_of(path)
    make_folder(folder)
    target = os.path.join(folder, quote(name, safe=""))
    # One reader of this name at a time writes here: two would replace each other's temporary file.
    fresh = f"{target}{_FRESH}"
    with open(fresh, "wb", opener=opener) as file:
        file.write(msgspec.json.encode(Shown(seq, time.time_ns(), os.getpid())))
    os.replace(fresh, target)


def shown_cursors(path: str) -> dict[str, int]:
    try:
        names = os.listdir(folder_of(path))
    except OSError:
        return {}
    found = {}
    for name in names:
        if not name.endswith(_FRESH):
            shown = _read(os.path.join(folder_of(path), name))
            if shown is not None:
                found[unquote(name)] = shown.seq
    return found


def _read(path: str) -> Shown | None:
    """None for a file that is not a cursor."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Shown)
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("the cursor file %s cannot be read and is ignored: %s", path, error)
        return None
