"""`unibus check` and `unibus repair`: open the files of a store, salvage them, and write a new store.

A repair never changes the original:

    lock the original (shared) ─▶ copy ─▶ salvage ─▶ write the new store in a temporary folder ─▶ open it and compare
                                                                               ─▶ rename to its name ─▶ sync the folder

A crash at any point before the rename leaves the original and a temporary folder `.repair-…`.
"""

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from unibus.core.lifecycle.invariants import differences, violations
from unibus.core.lifecycle.state.deadlines import NEVER
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import BusError, StoreBusy, StoreDamaged, StoreUnavailable, UsageError
from unibus.limits import HISTORY_AGE_S_DEFAULT
from unibus.stores.files.owner import busy_elsewhere, checked_links
from unibus.stores.inspection.findings import Finding, Inspection
from unibus.stores.inspection.salvage import Salvage
from unibus.stores.inspection.writing import salvaged_store
from unibus.stores.schemes import (
    InspectedFiles,
    JournalSettings,
    StoreScheme,
    find_scheme,
    inspected_schemes,
    split_url,
)
from unibus.stores.seam.forked import hold_at_fork
from unibus.stores.seam.recovery import recover


def check(given: str) -> Inspection:
    """What a store has, and what is wrong with it. Some stores may have an owner meanwhile: `beside_owner`."""
    row, path = located(given)
    try:
        with _named(path, path):
            return _check(row, path)
    except StoreDamaged as error:
        # The snapshot cannot be read, so the log after it cannot be replayed.
        finding = Finding(error.what, "it cannot be repaired: restore a backup")
        return Inspection(f"{row.name}:///{path}", findings=[finding])


def _check(row: StoreScheme, path: str) -> Inspection:
    inspected = _inspected(row)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_no_fork())
        # Tried without an owner first: then the files are of one moment, and no change can be in progress.
        is_owned = False
        try:
            stack.enter_context(_no_owner(row, path))
        except StoreBusy:
            if not inspected.beside_owner:
                raise
            is_owned = True
        files = stack.enter_context(contextlib.closing(inspected.open(path, f"{row.name}:///{path}", is_owned)))
        salvage = Salvage(files).run()
        salvage.state.release()  # Breaks reference cycles: the garbage collector does not see compiled objects.
        return salvage.inspection


def repair(given: str, to: str) -> Inspection:
    """Write a new store at `to` with everything that the files of a damaged one prove."""
    row, path = located(given)
    inspected = _inspected(row)
    target = located(to, row)[1]
    # `lexists`: a broken link at this name would be replaced by the rename as well.
    if os.path.lexists(target):
        raise UsageError(f"{to} exists already", "name a new store: a repair overwrites nothing")
    if not Path(target).parent.is_dir():
        raise UsageError(f"there is no folder {Path(target).parent}", "create it first")
    with contextlib.ExitStack() as stack:
        # The order of the stack is that of the cleanup in reverse: files are closed, then the temporary folder is
        # removed, then the lock is released.
        stack.enter_context(_named(path, target))
        stack.enter_context(_no_fork())
        stack.enter_context(_no_owner(row, path))
        # In the folder of the target: a rename is atomic only within one file system.
        work = stack.enter_context(tempfile.TemporaryDirectory(prefix=".repair-", dir=Path(target).parent))
        # Under the lock: no owner can change the original while it is copied.
        copy = inspected.copy(path, work)
        stack.enter_context(_named_by(copy, path))
        files = stack.enter_context(contextlib.closing(inspected.open(copy, f"{row.name}:///{path}", True)))
        salvage = Salvage(files).run()
        salvage.inspection.findings = [
            Finding(each.what.replace(copy, path), each.effect) for each in salvage.inspection.findings
        ]
        # Before anything is written: a state that breaks an invariant is no store.
        broken = violations(salvage.state)
        if broken:
            raise StoreDamaged(f"{path} cannot be repaired: {broken[0]}", "restore a backup")
        # An intact store is not written again: the report says that there is nothing to repair.
        if not salvage.inspection.ok:
            new = f"{work}/new"
            inspected.write(new, salvaged_store(salvage, files))
            # While it still has its temporary name: a store that does not open never gets the name of the target.
            _verify(row, new, files.domain, salvage)
            os.rename(new, target)
            # A power cut after the success is reported must not undo the rename.
            _sync_folder(Path(target).parent)
        salvage.state.release()
        return salvage.inspection


def located(given: str, original: StoreScheme | None = None) -> tuple[StoreScheme, str]:
    """The row of a store and its real path, from a path or a URL. `original` is given for a store that is to be
    created: it is the row of the store that is repaired."""
    scheme, separator, _ = given.partition("://")
    row: StoreScheme | None
    if separator:
        row, path = find_scheme(scheme), unquote(split_url(given).path)[1:]
        if original is not None and row is not original:
            raise UsageError(
                f"{given} has another scheme than the original", f"name a new {original.name} store, or a path"
            )
        if row is None or row.inspection is None or not path:
            raise UsageError(f"{given!r} names no store in files", _hint())
    else:
        path, row = given, original or _row_at(given)
    if original is None:
        _check_kind(row, path)
    # Locks and hard links belong to the real file, whatever name was given.
    real = os.path.realpath(path)
    checked_links(real)
    return row, real


def _row_at(path: str) -> StoreScheme:
    """The row of a path without a scheme: the first one whose stores are files, or folders, as this one is."""
    kind = "folder" if os.path.isdir(path) else "file"
    return next(row for row in inspected_schemes() if row.kept_in == kind)


def _check_kind(row: StoreScheme, path: str) -> None:
    is_folder = os.path.isdir(path)
    if not os.path.exists(path):
        raise StoreUnavailable(f"there is no file or folder {path}", _hint())
    if not is_folder and not os.path.isfile(path):
        raise UsageError(f"{path} is neither a file nor a folder", _hint())
    if is_folder != (row.kept_in == "folder"):
        raise UsageError(
            f"{path} is a {'folder' if is_folder else 'file'}, which is not a {row.name} store",
            f"a {row.name} store is a {row.kept_in}",
        )


def _hint() -> str:
    return f"write a path, {' or '.join([row.example for row in inspected_schemes()])}"


def _inspected(row: StoreScheme) -> InspectedFiles:
    assert row.inspection is not None  # `located` returns no other row.
    return row.inspection


@contextlib.contextmanager
def _no_fork() -> Iterator[None]:
    """A fork waits until this is over: a child that is forked during a call into SQLite could not open any file."""
    # A lock of this call: `hold_at_fork` keeps it weakly, and forgets it at the end.
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


def _lock_file(row: StoreScheme, path: str) -> str:
    return f"{row.lock_beside(path)}.lock"


@contextlib.contextmanager
def _no_owner(row: StoreScheme, path: str) -> Iterator[None]:
    """No process owns the store, and none becomes its owner meanwhile: a shared lock excludes the owner's exclusive
    one.

    Creates nothing: a store without a lock file is read without a lock.
    """
    lock = _lock_file(row, path)
    try:
        # Read-only: an operator may check a store that only its owner may write.
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


def _verify(row: StoreScheme, path: str, domain: str, salvage: Salvage) -> None:
    """Open the new store as every program does, and compare it with what was salvaged."""
    # Without a reserve: its file would be renamed with the store, or left in the temporary folder.
    journal = row.journal(path, JournalSettings(domain, HISTORY_AGE_S_DEFAULT, row.history_bytes, 0))
    state = StoreState(NEVER)
    try:
        recover(journal, state)
        for entry in salvage.unreadable:
            # The new store does not have these, so both states are compared without them.
            del entry.entity.entries[entry.sequence]
        latest = max([entity.updated_ns for entity in state.entities.values()], default=0)
        wrong = violations(state) + differences(salvage.state, state, latest)
        if wrong:
            raise StoreDamaged(
                f"the repaired store would differ: {wrong[0]}", "this is a defect of unibus; the original is unchanged"
            )
        for entity in state.entities.values():
            # Reads every body once: a checksum that does not match raises here, and not at the first receive.
            journal.read_bodies([entry for entry in entity.entries.values() if entry.data is None])
    finally:
        journal.close()
        state.release()
    # Of this check: the first owner of the repaired store creates its own.
    Path(_lock_file(row, path)).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
