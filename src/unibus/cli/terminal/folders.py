"""Checks a folder before a command writes into it, so that a wrong path is one error and leaves no partial files."""

import os
import tempfile
from pathlib import Path

from unibus.errors import StoreUnavailable
from unibus.stores.files.local_folder import local_folder


def check_can_write(option: str, folder: str | Path) -> None:
    """Raises StoreUnavailable if the folder cannot be created or is not writable."""
    wanted = Path(os.path.abspath(local_folder(folder, "the folder")))
    there = next(each for each in (wanted, *wanted.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise StoreUnavailable(f"{there} is a file, not a folder", f"name another folder: {option}")
    try:
        if there != wanted:
            os.rmdir(tempfile.mkdtemp(prefix=".unibus-", dir=there))  # Permissions are not enough: /proc has them.
        elif not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(0, "permission denied")
    except OSError as error:
        raise StoreUnavailable(
            f"{folder} is not writable: {error.strerror}", f"name another folder: {option}"
        ) from error
