"""Cursors of readers outside: where a process stands that follows history beside the owner.

The file of a store has one writer, its owner, and a reader must never make it wait. So a reader tells where it stands
in a small file of its own, `bus.db-cursors/NAME`, written beside and renamed: whoever looks sees the one before or the
new one. It is for seeing only. What a reader relies on after a crash is its own; so nothing is synced here.
"""

import logging
import os
import time
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from unibus.stores.files.private import make_folder, opener

log = logging.getLogger("unibus")

_FRESH: Final = ".new"


class Shown(msgspec.Struct):
    seq: int
    at_ns: int
    pid: int


def folder_of(path: str) -> str:
    """Beside the real file, so that the owner and a reader who name it differently mean the same folder."""
    return f"{os.path.realpath(path)}-cursors"


def show_cursor(path: str, name: str, seq: int) -> None:
    """OSError where the folder cannot be written."""
    folder = folder_of(path)
    make_folder(folder)
    target = os.path.join(folder, quote(name, safe=""))
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
    """None for what somebody else put there."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Shown)
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("%s is no cursor: %s", path, error)
        return None
