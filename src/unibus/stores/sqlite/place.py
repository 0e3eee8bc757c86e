"""Checks whether a file is ours, and takes the owner's lock: opens our file, uses an empty one, rejects any other.

All checks come before the lock file is created: a path that is rejected stays as it was, and so does its folder.
"""

import os
import stat
from typing import Final
from urllib.parse import quote

import apsw

from unibus.errors import StoreDamaged, StoreUnavailable
from unibus.stores.files.owner import Owner, check_not_open, checked_links, hint_for
from unibus.stores.files.private import make_file
from unibus.stores.seam.forked import OPENING
from unibus.stores.sqlite.file import check_identity, close_after_error, translated

_PARTS: Final = (".lock", ".jobs.json", ".serve.json", "-wal", "-shm", "-reserve")
"""The suffixes of files beside a store."""


def own_file(path: str) -> Owner:
    """The owner's lock on a file of ours, which is created if it does not exist. `path` is a real path."""
    try:
        _check(path)
        # Order: checks that change nothing, then the lock, and only then the file itself. Two processes that create a
        # new store at once meet at the lock.
        owner = Owner(path)
    except OSError as error:
        raise _unavailable(path, error) from error
    try:
        # With mode 0600: SQLite gives its -wal and -shm the mode of the file itself.
        make_file(path)
        owner.take(path)
    except OSError as error:
        owner.release()
        raise _unavailable(path, error) from error
    except BaseException:
        owner.release()
        raise
    return owner


def _check(path: str) -> None:
    if path.endswith(_PARTS) and os.path.exists(path.removesuffix(next(end for end in _PARTS if path.endswith(end)))):
        raise StoreUnavailable(f"{path} is a part of another store", "name the store itself, or another file")
    found = checked_links(path)
    if found is None and _size(f"{path}-wal") > 0:
        # SQLite would treat a log without its file as a leftover, and delete it with every message in it.
        raise StoreDamaged(
            f"{path} is missing, but {path}-wal has changes that belong to it",
            "restore the file beside its log; or move the log away, if you do not need it any more",
        )
    if found is None:
        if not os.path.isdir(os.path.dirname(path)):
            raise StoreUnavailable(f"cannot open {path}: there is no such folder", "create the folder first")
        return
    if not stat.S_ISREG(found.st_mode):
        raise StoreUnavailable(f"cannot open {path}: it is not a regular file", "choose another file")
    # Before `_check_content`, which opens the file: closing it again would drop the POSIX locks that a connection of
    # this process holds on it.
    check_not_open(path, found)
    if found.st_size:
        _check_content(path)


def _check_content(path: str) -> None:
    """Reject a file that is certainly not ours. One that looks damaged is left to the real open, which reads all of it.

    Without a write-ahead log the file is read as `immutable`: no lock, no file beside it. With one, the valid pages may
    be in the log, and page 1 of the file may be torn by a checkpoint that a crash interrupted. Then only an ordinary
    reader can decide, and it is used only if the shared memory exists: it would create a file otherwise.
    """
    has_log = _size(f"{path}-wal") > 0
    if has_log and _size(f"{path}-shm") < 0:
        return
    with OPENING:
        _look_at(path, has_log)


def _look_at(path: str, has_log: bool) -> None:
    try:
        connection = apsw.Connection(
            f"file:{quote(path)}?mode=ro{'' if has_log else '&immutable=1'}",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        )
        try:
            check_identity(connection, path)
        finally:
            close_after_error(connection)
    except (apsw.NotADBError, apsw.CantOpenError, apsw.PermissionsError) as error:
        if not has_log:
            raise translated(error, path) from error
    except apsw.Error:
        return  # The real open raises it again, if it is an error there, too.


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


def _unavailable(path: str, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"cannot open {path}: {error.strerror or error}", hint_for(error))
