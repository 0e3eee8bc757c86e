"""Simulated power cuts for SQLite: a VFS whose files are on the disk of `disk.py`.

    disk = SimulatedDisk(seed=7)
    db = apsw.Connection("bus.db", vfs=disk.name)
    db.execute("PRAGMA locking_mode=EXCLUSIVE")       # before WAL: a file in Python has no shared memory
    db.execute("PRAGMA journal_mode=WAL")
    ...
    disk.cut()                                        # or, before the work, disk.cut_at(n)
    db.close()
    db = apsw.Connection("bus.db", vfs=disk.name)     # the machine starts again, with what was synced

The device reports neither atomic writes nor powersafe overwrite, so SQLite relies on syncs alone.

A cut ends every handle: each of its calls is an I/O error, except closing. The next database that is opened turns the
power on. Close the old connections first: SQLite opens journals by their name, and an old connection would write into
the files of the new ones. In WAL mode that close raises nothing; with a rollback journal it may raise one more I/O
error, and so may a close during which the power is cut.

`cut_at(n)` and `fail_at(n, fault)` count calls from now. To test each call, run the work once, read `disk.steps` (or
`writes`, `syncs`, `reads`, …), and run it again on a new disk for every n. The error of a fault reaches the caller even
if SQLite ignores it, in an automatic checkpoint after a commit: so a call that raised may have committed. A short read
raises nothing by itself: SQLite reads the missing half as zeros.

`copy()` gives many outcomes of one moment: `disk.copy(seed=n).cut()` for each n. The VFS is registered as long as the
disk is referenced or has an open file.
"""

import itertools
import time
from typing import Final, Self, cast

import apsw

from unibus.testing.disk import Disk, DiskFile, Fault

__all__ = ["Fault", "SimulatedDisk"]

NONE, SHARED, RESERVED, PENDING, EXCLUSIVE = range(5)
"""The lock levels of SQLite."""

MILLISECONDS_1970: Final = 210_866_760_000_000
"""From noon of the day that Julian days are counted from."""

_numbers = itertools.count(1)


class SimulatedDisk(Disk, apsw.VFS):
    """A disk in memory that SQLite opens databases on, by `vfs=disk.name`."""

    def __init__(self, seed: int | str = 0, *, sector: int = 512, lying_sync: bool = False) -> None:
        Disk.__init__(self, seed, sector=sector, lying_sync=lying_sync)
        self.name = f"unibus-disk-{next(_numbers)}"
        apsw.VFS.__init__(self, self.name, None)

    def copy(self, seed: int | str | None = None) -> Self:
        """Another disk with the same files and unsynced changes. Without a seed, a cut has the same outcome."""
        disk = type(self)(seed or 0, sector=self.sector, lying_sync=self.lying_sync)
        return disk.copy_from(self, fate=seed is None)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        wanted = flags[1] = flags[0]
        with self.guard:
            if wanted & apsw.SQLITE_OPEN_MAIN_DB:
                self.on = True
            file = DiskFile() if path is None else self._opened(path, wanted)
            handle = DiskHandle(self, path, file, doomed=bool(wanted & apsw.SQLITE_OPEN_DELETEONCLOSE))
        # Not a subclass of VFSFile: that would inherit from a base VFS, which does not exist here.
        return cast(apsw.VFSFile, handle)

    def _opened(self, path: str, wanted: int) -> DiskFile:
        file = self.names.found(path)
        missing = file is None and not wanted & apsw.SQLITE_OPEN_CREATE
        taken = file is not None and wanted & apsw.SQLITE_OPEN_EXCLUSIVE and wanted & apsw.SQLITE_OPEN_CREATE
        if missing or taken or not self.on:
            raise apsw.exception_for(apsw.SQLITE_CANTOPEN)
        return file or self.names.create(path)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        with self.guard:
            self._need_power()
            if self.names.found(filename) is None:
                raise apsw.exception_for(apsw.SQLITE_IOERR_DELETE_NOENT)
            self.delete(filename, durably=syncdir)

    def xAccess(self, pathname: str, flags: int) -> bool:
        with self.guard:
            self._need_power()
            return self.names.found(pathname) is not None

    def _need_power(self) -> None:
        if not self.on:
            raise apsw.exception_for(apsw.SQLITE_IOERR)

    def xFullPathname(self, name: str) -> str:
        return name

    def xRandomness(self, numbytes: int) -> bytes:
        return self._chance.randbytes(numbytes)

    def xSleep(self, microseconds: int) -> int:
        time.sleep(microseconds / 1e6)
        return microseconds

    def xCurrentTime(self) -> float:
        return self.xCurrentTimeInt64() / 86_400_000

    def xCurrentTimeInt64(self) -> int:
        return MILLISECONDS_1970 + time.time_ns() // 1_000_000

    def xGetLastError(self) -> tuple[int, str | None]:
        return 0, None


class DiskHandle:
    """A file that SQLite has open, until it is closed or the power is cut."""

    __slots__ = ("_disk", "_doomed", "_file", "_life", "_locks", "_name")

    def __init__(self, disk: SimulatedDisk, name: str | None, file: DiskFile, *, doomed: bool) -> None:
        self._disk = disk
        self._name = name
        self._file = file
        self._locks = file.locks
        self._doomed = doomed
        self._life = disk.life

    def xRead(self, amount: int, offset: int) -> bytearray:
        disk = self._disk
        with disk.guard:
            if self._life != disk.life:
                raise apsw.exception_for(apsw.SQLITE_IOERR_READ)
            disk.reads += 1
            if disk.armed:
                amount = disk.readable(amount)
            return self._file.content[offset : offset + amount]

    def xWrite(self, data: bytes, offset: int) -> None:
        disk = self._disk
        with disk.guard:
            if self._life != disk.life:
                raise apsw.exception_for(apsw.SQLITE_IOERR_WRITE)
            disk.write(self._file, bytes(data), offset)

    def xTruncate(self, newsize: int) -> None:
        disk = self._disk
        with disk.guard:
            if self._life != disk.life:
                raise apsw.exception_for(apsw.SQLITE_IOERR_TRUNCATE)
            disk.truncate(self._file, newsize)

    def xSync(self, flags: int) -> None:
        disk = self._disk
        with disk.guard:
            if self._life != disk.life:
                raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)
            disk.sync(self._name, self._file)

    def xFileSize(self) -> int:
        if self._life != self._disk.life:
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSTAT)
        return len(self._file.content)

    def xLock(self, level: int) -> None:
        disk, locks = self._disk, self._locks
        held = locks.get(self, NONE)
        with disk.guard:
            if self._life != disk.life:
                # SQLite requests the lock that it has when it closes in WAL mode; only BUSY raises nothing there.
                raise apsw.exception_for(apsw.SQLITE_BUSY if held == EXCLUSIVE else apsw.SQLITE_IOERR_LOCK)
            if held >= level:
                return
            others = max((theirs for handle, theirs in locks.items() if handle is not self), default=NONE)
            if others >= (PENDING if level == SHARED else RESERVED):
                raise apsw.exception_for(apsw.SQLITE_BUSY)
            # PENDING lets readers finish and admits no new ones, so that a writer is not starved.
            locks[self] = PENDING if level == EXCLUSIVE and others else level
            if level == EXCLUSIVE and others:
                raise apsw.exception_for(apsw.SQLITE_BUSY)

    def xUnlock(self, level: int) -> None:
        with self._disk.guard:
            if level == NONE:
                self._locks.pop(self, None)
            elif self in self._locks:
                self._locks[self] = level

    def xCheckReservedLock(self) -> bool:
        with self._disk.guard:
            if self._life != self._disk.life:
                raise apsw.exception_for(apsw.SQLITE_IOERR_CHECKRESERVEDLOCK)
            return any(level >= RESERVED for level in self._locks.values())

    def xFileControl(self, op: int, ptr: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return self._disk.sector

    def xDeviceCharacteristics(self) -> int:
        return 0

    def xClose(self) -> None:
        disk = self._disk
        with disk.guard:
            if self._life != disk.life:
                return
            self._locks.pop(self, None)
            if self._doomed and self._name is not None and disk.names.found(self._name) is self._file:
                disk.names.lead(self._name, None)
