"""Whose file is it? A file of ours is opened, an empty one becomes ours, and any other is left alone.

All of that is decided before the lock file is made: a path that is refused is as it was, and so is its folder.
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
"""What files beside a store end in."""


def own_file(path: str) -> Owner:
    """The lock on a file of ours, which is made if there is none. `path` is a real path."""
    try:
        _check(path)
        owner = Owner(path)
    except OSError as error:
        raise _unavailable(path, error) from error
    try:
        # SQLite gives the files beside it the mode of this one.
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
        # SQLite would take a log without its file for a leftover and delete it, with every message in it.
        raise StoreDamaged(
            f"{path} is missing, and {path}-wal has changes that belong to it",
            "put the file back beside its log; or move the log away, if it is of no use any more",
        )
    if found is None:
        if not os.path.isdir(os.path.dirname(path)):
            raise StoreUnavailable(f"cannot open {path}: there is no such folder", "make the folder first")
        return
    if not stat.S_ISREG(found.st_mode):
        raise StoreUnavailable(f"cannot open {path}: it is not a regular file", "choose another file")
    check_not_open(path, found)
    if found.st_size:
        _check_content(path)


def _check_content(path: str) -> None:
    """Refuse what is certainly not ours. What looks damaged is left to the real open, which can read the whole store.

    Without a write-ahead log the file is read as `immutable`: no lock, no file beside it. With one, what counts may be
    in the log, and page 1 of the file may be torn by a checkpoint that a crash ended. Then only an ordinary reader can
    tell, and it may look where it does not have to make the shared memory.
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
        return  # The real open says what it is, if it is anything.


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


def _unavailable(path: str, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"cannot open {path}: {error.strerror or error}", hint_for(error))
