"""Files and folders that only their owner may read: messages are in them.

What unibus makes has the modes 0600 and 0700, whatever the umask allows. What exists already keeps its mode: an
administrator may have opened it to a group on purpose. On Windows modes mean nothing, and the access list of the folder
above decides.
"""

import os
from typing import Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def make_folder(path: str) -> None:
    """The folder, and those above it that are missing. Only the last one is private: the others hold nothing else."""
    os.makedirs(path, FOLDER_MODE, exist_ok=True)


def make_file(path: str) -> bool:
    """A new and empty file; False if there is one already, which is not opened.

    A process must not open a SQLite file by itself while SQLite has it: closing it would drop SQLite's locks. A file
    that is made here is one that SQLite cannot have.
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
    """Give a file that is about to replace another one the mode of that one, if it exists."""
    if os.name == "posix":
        try:
            mode = os.stat(of).st_mode & 0o777
        except FileNotFoundError:
            return
        if mode != os.stat(path).st_mode & 0o777:
            os.chmod(path, mode)
