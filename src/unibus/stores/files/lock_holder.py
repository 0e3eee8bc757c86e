"""Which process holds the lock of a store, found without taking the exclusive lock.

A command that finds a `FILE.serve.json` has to know whether the server that wrote it still owns the file. If it tried
the exclusive lock, a program that opens the store at this moment would fail. So it reads the kernel's table of locks.
Without such a table it takes a shared lock and releases it at once. An owner that starts in these microseconds finds a
lock file that names no running process, and tries again (`is_passing`).

    /proc/locks:  17: FLOCK  ADVISORY  WRITE 4711 fd:01:2320220 0 EOF        the process, and the inode at the end
"""

import json
import os
import sys
from pathlib import Path
from typing import Final

from unibus.errors import StoreBusy

LOCK_SUFFIX: Final = ".lock"
SERVER_SUFFIX: Final = ".serve.json"
"""`config/server_file.py` writes and reads these files; a test checks that both names are equal."""

TABLE: Final = "/proc/locks"
_URL_CHARS_MAX: Final = 200


def is_held_by(path: str, pid: int) -> bool:
    """Whether process `pid` holds the lock of the store in `path`, a file or a link to it."""
    lock = f"{os.path.realpath(path)}{LOCK_SUFFIX}"
    try:
        inode = os.stat(lock).st_ino
    except OSError:
        return False
    if not is_alive(pid):
        return False
    # The process is checked first: the lock file of a process that was killed still names it.
    holder = _holder_in_table(inode)
    return holder == pid if holder else pid_in(lock) == pid and _is_locked(lock)


def _holder_in_table(inode: int) -> int:
    """The process; 0 without a table, or if the table has another inode than `stat`, as on some overlay file
    systems."""
    try:
        text = Path(TABLE).read_text("ascii", "replace")
    except OSError:
        return 0
    for line in text.splitlines():
        words = line.split()
        # A line with "->" before the kind is a process that waits for the lock.
        if len(words) >= 6 and words[1] == "FLOCK" and words[5].endswith(f":{inode}") and words[4].isdecimal():
            return int(words[4])
    return 0


def _is_locked(lock: str) -> bool:
    """Whether a process holds the lock."""
    if sys.platform == "win32":
        try:
            with open(lock, "rb") as file:
                file.read(1)
        except PermissionError:
            return True
        return False
    import fcntl

    try:
        # A descriptor of its own: flock belongs to the open file, so closing this one cannot release an owner's lock in
        # the same process.
        file = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)  # Releases it.
    return False


def is_passing(lock: str) -> bool:
    """Whether a held lock may be free in a moment: its text names no running process of this machine."""
    pid = pid_in(lock)
    return pid is None or not is_alive(pid)


def is_alive(pid: int) -> bool:
    """Whether this process runs. Always True on Windows, where `os.kill` would end it."""
    if sys.platform == "win32":
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except PermissionError:
        return True  # It belongs to another user.
    return True


def pid_in(lock: str) -> int | None:
    """The process that the text of a lock file names, or None."""
    return _number(_read(lock), "pid")


def server_url(lock: str) -> str:
    """The URL of the server that holds this lock; "" if the owner is not a server.

    Only for the text of an error: `FILE.serve.json` and the lock file name the same process, which proves no more.
    """
    found = _read(lock.removesuffix(LOCK_SUFFIX) + SERVER_SUFFIX)
    pid = _number(found, "pid")
    url = found.get("url")
    if pid is None or pid != pid_in(lock) or not isinstance(url, str):
        return ""
    return url if url.isprintable() and len(url) <= _URL_CHARS_MAX else ""


def served_elsewhere(name: str, holder: str, url: str) -> StoreBusy:
    return StoreBusy(
        f"{name} is in use by the server {url}, {holder}",
        "commands use that server by themselves, programs reach it over HTTP; `unibus server stop` ends it",
        holder,
    )


def _read(path: str) -> dict[str, object]:
    try:
        found = json.loads(Path(path).read_bytes()[:10_000])
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(found: dict[str, object], name: str) -> int | None:
    value = found.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
