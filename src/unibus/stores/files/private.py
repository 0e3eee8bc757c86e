"""Files and folders that only their owner may read: they hold messages.

New files have the mode 0600 and new folders 0700, whatever the umask allows. Existing ones keep their mode: an
administrator may have opened them to a group on purpose. Windows ignores modes; the access list of the parent folder
decides there.
"""

import os
from typing import Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def make_folder(path: str) -> None:
    """Create the folder and its missing parents. Only the last one is private: the parents hold nothing else of
    ours."""
    os.makedirs(path, FOLDER_MODE, exist_ok=True)


def make_file(path: str) -> bool:
    """Create an empty file; False if it exists: then it is not opened.

    A process must not open a file that SQLite has open: closing it would drop SQLite's locks. O_EXCL makes sure that
    this file is new, so SQLite cannot have it.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), FILE_MODE))
    except FileExistsError:
        return False
    return True


def opener(path: str, flags: int) -> int:
    """For `open(path, "wb", opener=opener)`."""
    return os.open(path, flags | getattr(os, "O_CLOEXEC", 0), FILE_MODE)


def keep_mode(path: str, of: str) -> None:
    """Give a file that will replace another one the mode of that one, if it exists."""
    if os.name == "posix":
        try:
            mode = os.stat(of).st_mode & 0o777
        except FileNotFoundError:
            return
        if mode != os.stat(path).st_mode & 0o777:
            os.chmod(path, mode)
