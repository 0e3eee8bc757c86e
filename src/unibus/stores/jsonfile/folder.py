"""Whose folder is it? One of ours is opened, an empty one becomes ours, and any other is left alone."""

import time
from pathlib import Path
from typing import Final

from unibus.errors import StoreBusy, StoreUnavailable
from unibus.stores.files.disk import Files
from unibus.stores.files.owner import Owner, checked_links, hint_for
from unibus.stores.jsonfile.forms import instant_text
from unibus.stores.jsonfile.log import damaged, is_segment
from unibus.stores.jsonfile.snapshot import PART
from unibus.stores.jsonfile.state import FOLDERS, FORMAT, STATE, State, read_state, write_state

RESERVE: Final = "reserve"
_OURS: Final = frozenset({*FOLDERS, f"{STATE}.lock", f"{STATE}.serve.json", f"{STATE}.new", PART, RESERVE})
"""What a folder may have in it that nobody has finished to make."""


def check_place(files: Files, folder: str) -> None:
    """Refuse a folder that is not ours, or that cannot be read, before anything is made in it."""
    if not files.is_folder(folder):
        if files.size(folder) >= 0:
            raise StoreUnavailable(f"{folder} is a file, and no folder", "choose another name")
        return
    if not _is_new(files, folder):
        read_state(files, folder)
        return
    others = [name for name in files.list(folder) if name not in _OURS]
    if others:
        raise StoreUnavailable(
            f"{folder} has {min(others)!r} in it, and no {STATE}: it is not one of unibus",
            "choose another folder, or an empty one",
        )
    log = f"{folder}/wal"
    if files.is_folder(log) and any(is_segment(name) for name in files.list(log)):
        raise damaged(f"{folder}/{STATE}", 0, "it is missing, and there is a log")


def _is_new(files: Files, folder: str) -> bool:
    return files.size(f"{folder}/{STATE}") < 0


def own(folder: str) -> Owner:
    """The lock on a folder, by its real path. One lock file is in the folder, under whatever name that is reached."""
    checked_links(f"{folder}/{STATE}")
    try:
        return Owner(f"{folder}/{STATE}")
    except StoreBusy as error:
        raise StoreBusy(f"{Path(folder).name}: {error.what}", error.hint, error.holder) from error


def begin(files: Files, folder: str, domain: str) -> str:
    """Make it one of ours, if it is not yet. Gives its domain: that of the beginning."""
    if _is_new(files, folder):
        _make_folders(files, folder)
        write_state(files, folder, State("store", FORMAT, domain, instant_text(time.time_ns())))
        files.sync_folder(str(Path(folder).parent))
    found = read_state(files, folder).domain
    _make_folders(files, folder)  # An empty one may have been left out of a copy.
    return found


def _make_folders(files: Files, folder: str) -> None:
    for name in FOLDERS:
        files.make_folder(f"{folder}/{name}")


def unavailable(folder: str, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"cannot open {folder}: {error.strerror or error}", hint_for(error))
