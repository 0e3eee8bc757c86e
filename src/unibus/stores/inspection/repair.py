"""`unibus check` and `unibus repair`: open the files of a store, salvage them, and write a new store.

A repair never changes the original:

    lock the original (shared) ─▶ copy ─▶ salvage ─▶ write the new store in a temporary folder ─▶ open it and compare
                                                                               ─▶ rename to its name ─▶ sync the folder

A crash at any point before the rename leaves the original and a temporary folder `.repair-…`.
"""

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from unibus.core.lifecycle.invariants import differences, violations
from unibus.core.lifecycle.state.deadlines import NEVER
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import BusError, StoreBusy, StoreDamaged, StoreUnavailable, UsageError
from unibus.stores.files.owner import busy_elsewhere, checked_links
from unibus.stores.inspection.files import StoreFiles
from unibus.stores.inspection.findings import Finding, Inspection
from unibus.stores.inspection.json_files import JsonFiles
from unibus.stores.inspection.salvage import Salvage
from unibus.stores.inspection.sqlite_files import SqliteFiles
from unibus.stores.inspection.writing import write_jsonfile, write_sqlite
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.schemes import JSONFILE as JSON_SCHEME
from unibus.stores.schemes import SQLITE as SQLITE_SCHEME
from unibus.stores.schemes import split_url
from unibus.stores.seam.forked import hold_at_fork
from unibus.stores.seam.journal import Journal
from unibus.stores.sqlite.journal import SqliteJournal

SQLITE, JSONFILE = SQLITE_SCHEME.name, JSON_SCHEME.name
_SCHEMES: Final = {row.name: row for row in (SQLITE_SCHEME, JSON_SCHEME)}
"""The stores whose files can be checked and repaired."""


def check(given: str) -> Inspection:
    """What a store has, and what is wrong with it. A SQLite file may have an owner meanwhile, a JSON folder may not."""
    kind, path = located(given)
    try:
        with _named(path, path):
            return _check(kind, path)
    except StoreDamaged as error:
        # The snapshot cannot be read, so the log after it cannot be replayed.
        finding = Finding(error.what, "it cannot be repaired: restore a backup")
        return Inspection(f"{kind}:///{path}", findings=[finding])


def _check(kind: str, path: str) -> Inspection:
    with contextlib.ExitStack() as stack:
        stack.enter_context(_inside_sqlite())
        is_owned = False
        try:
            stack.enter_context(_no_owner(kind, path))
        except StoreBusy:
            if kind == JSONFILE:
                raise
            is_owned = True
        files = stack.enter_context(contextlib.closing(_files(kind, path, path, is_owned)))
        salvage = Salvage(files).run()
        salvage.state.release()  # Breaks reference cycles: the garbage collector does not see compiled objects.
        return salvage.inspection


def repair(given: str, to: str) -> Inspection:
    """Write a new store at `to` with everything that the files of a damaged one prove."""
    kind, path = located(given)
    target = located(to, kind)[1]
    if os.path.lexists(target):
        raise UsageError(f"{to} exists already", "name a new store: a repair overwrites nothing")
    if not Path(target).parent.is_dir():
        raise UsageError(f"there is no folder {Path(target).parent}", "create it first")
    with contextlib.ExitStack() as stack:
        stack.enter_context(_named(path, target))
        stack.enter_context(_inside_sqlite())
        stack.enter_context(_no_owner(kind, path))
        work = stack.enter_context(tempfile.TemporaryDirectory(prefix=".repair-", dir=Path(target).parent))
        copy = _copied(kind, path, work)
        stack.enter_context(_named_by(copy, path))
        files = stack.enter_context(contextlib.closing(_files(kind, path, copy, True)))
        salvage = Salvage(files).run()
        salvage.inspection.findings = [
            Finding(each.what.replace(copy, path), each.effect) for each in salvage.inspection.findings
        ]
        broken = violations(salvage.state)
        if broken:
            raise StoreDamaged(f"{path} cannot be repaired: {broken[0]}", "restore a backup")
        if not salvage.inspection.ok:
            new = f"{work}/new"
            write = write_sqlite if kind == SQLITE else write_jsonfile
            write(new, salvage, files)
            _verify(kind, new, salvage)
            os.rename(new, target)
            _sync_folder(Path(target).parent)
        salvage.state.release()
        return salvage.inspection


def located(given: str, kind: str = "") -> tuple[str, str]:
    """The kind of a store and its real path, from a path or a URL. `kind` is given for a store that is to be
    created."""
    scheme, separator, _ = given.partition("://")
    if separator:
        if kind and scheme != kind:
            raise UsageError(f"{given} has another scheme than the original", f"name a new {kind} store, or a path")
        path = unquote(split_url(given).path)[1:]
        if scheme not in _SCHEMES or not path:
            raise UsageError(
                f"{given!r} names no store in files",
                f"write a path, {' or '.join([row.example for row in _SCHEMES.values()])}",
            )
    else:
        path, scheme = given, kind or (JSONFILE if os.path.isdir(given) else SQLITE)
    if not kind and not os.path.exists(path):
        raise StoreUnavailable(f"there is no file or folder {path}", "name a SQLite file or a JSON folder")
    if not kind and not os.path.isdir(path) and not os.path.isfile(path):
        raise UsageError(f"{path} is neither a file nor a folder", "name a SQLite file or a JSON folder")
    if not kind and os.path.isdir(path) != (scheme == JSONFILE):
        raise UsageError(
            f"{path} is a {'folder' if os.path.isdir(path) else 'file'}, which is not a {scheme} store",
            "a SQLite store is a file, a JSON store a folder",
        )
    real = os.path.realpath(path)
    checked_links(real)
    return scheme, real


@contextlib.contextmanager
def _inside_sqlite() -> Iterator[None]:
    """A fork waits until this is over: a child that is forked during a call into SQLite could not open any file."""
    lock = threading.RLock()
    hold_at_fork(lock)
    with lock:
        yield


@contextlib.contextmanager
def _named(path: str, target: str) -> Iterator[None]:
    """Raises errors of the operating system as ours."""
    try:
        yield
    except BusError:
        raise
    except OSError as error:
        where = path if path == target else f"{path} or {target}"
        raise StoreUnavailable(
            f"cannot read or write {where}: {error.strerror or error}",
            "check that you may read the store and write to the folder of the new one, and that it has space for both",
        ) from error


@contextlib.contextmanager
def _named_by(copy: str, path: str) -> Iterator[None]:
    """Errors about the copy that is read name the original."""
    try:
        yield
    except BusError as error:
        if copy != path and copy in error.what:
            error.what = error.what.replace(copy, path)
            error.args = tuple(str(each).replace(copy, path) for each in error.args)
        raise


def _files(kind: str, path: str, read: str, is_owned: bool) -> StoreFiles:
    url = f"{kind}:///{path}"
    return SqliteFiles(read, url, is_owned) if kind == SQLITE else JsonFiles(read, url)


def _copied(kind: str, path: str, work: str) -> str:
    """The path that is read instead of the original. SQLite creates files beside the one that it opens, even to
    read."""
    if kind == JSONFILE:
        return path
    copy = f"{work}/original"
    shutil.copyfile(path, copy)
    if os.path.exists(f"{path}-wal"):
        shutil.copyfile(f"{path}-wal", f"{copy}-wal")
    return copy


def _lock_file(kind: str, path: str) -> str:
    return f"{_SCHEMES[kind].lock_beside(path)}.lock"


@contextlib.contextmanager
def _no_owner(kind: str, path: str) -> Iterator[None]:
    """No process owns the store, and none becomes its owner meanwhile: a shared lock excludes the owner's exclusive
    one.

    Creates nothing: a store without a lock file is read without a lock.
    """
    lock = _lock_file(kind, path)
    try:
        file = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        yield
        return
    try:
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            raise busy_elsewhere(Path(path).name, lock) from error
        yield
    finally:
        os.close(file)


def _verify(kind: str, path: str, salvage: Salvage) -> None:
    """Open the new store as every program does, and compare it with what was salvaged."""
    journal: Journal = SqliteJournal(path) if kind == SQLITE else JsonFileJournal(path)
    state = StoreState(NEVER)
    try:
        journal.load(state)
        for entry in salvage.unreadable:
            del entry.entity.entries[entry.sequence]
        latest = max([entity.updated_ns for entity in state.entities.values()], default=0)
        wrong = violations(state) + differences(salvage.state, state, latest)
        if wrong:
            raise StoreDamaged(
                f"the repaired store would differ: {wrong[0]}", "this is a defect of unibus; the original is unchanged"
            )
        for entity in state.entities.values():
            journal.bodies([entry for entry in entity.entries.values() if entry.data is None])
    finally:
        journal.close()
        state.release()
    Path(_lock_file(kind, path)).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
