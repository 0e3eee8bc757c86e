"""Folders that a command is about to write into: what is in the way is told in one line, before anything is written."""

import os
import tempfile
from pathlib import Path

from unibus.errors import StoreUnavailable
from unibus.stores.files.local_folder import local_folder


def check_can_write(option: str, folder: str | Path) -> None:
    """StoreUnavailable for a folder that is not there and cannot be made, or may not be written to."""
    wanted = Path(os.path.abspath(local_folder(folder, "the folder")))
    there = next(each for each in (wanted, *wanted.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise StoreUnavailable(f"{there} is a file, no folder", f"name another folder: {option}")
    try:
        if there != wanted:
            os.rmdir(tempfile.mkdtemp(prefix=".unibus-", dir=there))  # Rights alone do not tell: /proc makes nothing.
        elif not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(0, "nobody has given you the right")
    except OSError as error:
        raise StoreUnavailable(
            f"{folder} cannot be written to: {error.strerror}", f"name another folder: {option}"
        ) from error
