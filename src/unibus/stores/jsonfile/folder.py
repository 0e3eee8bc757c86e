"""Checks whether a folder is ours, and takes the owner's lock: opens our folder, uses an empty one, rejects any
other."""

import time
from pathlib import Path
from typing import Final
from uuid import uuid4

from unibus.errors import StoreBusy, StoreUnavailable
from unibus.stores.files.disk import Files
from unibus.stores.files.owner import Owner, checked_links, hint_for
from unibus.stores.jsonfile.forms import instant_text
from unibus.stores.jsonfile.log import damaged, is_segment
from unibus.stores.jsonfile.snapshot import PART
from unibus.stores.jsonfile.state import FOLDERS, FORMAT, STATE, State, read_state, write_state

RESERVE: Final = "reserve"
_OURS: Final = frozenset({*FOLDERS, f"{STATE}.lock", f"{STATE}.serve.json", f"{STATE}.new", PART, RESERVE})
"""What a folder can contain whose creation a crash has interrupted: state.json is written last."""


def check_place(files: Files, folder: str) -> None:
    """Reject a folder that is not ours or cannot be read, before anything is created in it."""
    if not files.is_folder(folder):
        if files.size(folder) >= 0:
            raise StoreUnavailable(f"{folder} is a file, not a folder", "choose another name")
        return
    if not _is_new(files, folder):
        read_state(files, folder)
        return
    others = [name for name in files.list(folder) if name not in _OURS]
    if others:
        raise StoreUnavailable(
            f"{folder} has {min(others)!r} in it, and no {STATE}: it is not a store of unibus",
            "choose another folder, or an empty one",
        )
    # A log without its state.json is a damaged store, not a new one: with a new state.json the messages of its snapshot
    # would be lost.
    log = f"{folder}/wal"
    if files.is_folder(log) and any(is_segment(name) for name in files.list(log)):
        raise damaged(f"{folder}/{STATE}", 0, "it is missing, but there is a log")


def _is_new(files: Files, folder: str) -> bool:
    return files.size(f"{folder}/{STATE}") < 0


def own(folder: str) -> Owner:
    """The owner's lock on a folder, by its real path: all names of the folder lead to the same lock file in it."""
    checked_links(f"{folder}/{STATE}")
    try:
        return Owner(f"{folder}/{STATE}")
    except StoreBusy as error:
        raise StoreBusy(f"{Path(folder).name}: {error.what}", error.hint, error.holder) from error


def begin(files: Files, folder: str, domain: str) -> str:
    """Create the files of a new store, if there are none. Returns the domain that the store was created with.

    state.json comes last: a crash before it leaves a folder that `check_place` still accepts as new.
    """
    if _is_new(files, folder):
        _make_folders(files, folder)
        new = State("store", FORMAT, domain, instant_text(time.time_ns()), uuid4().hex)
        write_state(files, folder, new)
        # The name of the folder itself is in its parent: without this a power cut could lose the whole store.
        files.sync_folder(str(Path(folder).parent))
    found = read_state(files, folder).domain
    _make_folders(files, folder)  # A copy of the store may lack an empty folder.
    return found


def _make_folders(files: Files, folder: str) -> None:
    for name in FOLDERS:
        files.make_folder(f"{folder}/{name}")


def unavailable(folder: str, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"cannot open {folder}: {error.strerror or error}", hint_for(error))
