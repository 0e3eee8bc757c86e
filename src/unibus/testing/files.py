"""Simulated power cuts for a folder of files: the disk of `disk.py` behind the journal's `Files`.

    disk = FolderDisk(seed=7)
    journal = JsonFileJournal("bus", files=disk.start())
    ...
    disk.cut()                                        # or, before the work, disk.cut_at(n)
    journal = JsonFileJournal("bus", files=disk.start())     # the machine starts again, with what was synced

The rule is POSIX and no more. The content of a file is durable after a sync of the file, which does not include its
name; a name is durable after a sync of its folder. A cut keeps or loses each creation, rename and removal since then as
a whole, and a step that depends on a lost one is lost too. So after a cut a name may lead to a file whose content was
never synced. After a failed sync it is random what was written, and no later sync repairs it. One thing is assumed
beyond POSIX, as SQLite does on Unix: a torn write does not damage synced bytes in the same sector (powersafe
overwrite).

`start()` gives the disk to one run of a program: after a cut or a kill each of its calls raises OSError. The fault
TRUNCATE applies to creating a file, DELETE to removing and renaming one, SYNC also to folders.
"""

import errno
import itertools
import os
import random
from typing import Final, NoReturn, Self

from unibus.testing.disk import IN_ORDER, Disk, DiskFile, DiskNames, Fault

__all__ = ["FolderDisk", "SimulatedFiles"]

_ERRORS: Final = {Fault.FULL: errno.ENOSPC}
Step = dict[str, DiskFile | None]
"""Names, and the file of each after the step."""


class SafeFile(DiskFile):
    """Synced bytes are never damaged, not even by a torn write in the same sector."""

    __slots__ = ()

    def settle(self, chance: random.Random, sector: int) -> None:
        before = bytes(self.durable)
        super().settle(chance, sector)
        self.durable[: len(before)] = before  # Files here only grow: synced bytes are never overwritten.

    def copy(self) -> "SafeFile":
        twin = SafeFile(self.content)
        twin.durable = bytearray(self.durable)
        twin.pending = self.pending.copy()
        return twin


class FolderNames(DiskNames):
    """The changes of names in their order: a rename is one step for two names."""

    def __init__(self) -> None:
        super().__init__()
        self._now: dict[str, DiskFile] = {}
        self._durable: dict[str, DiskFile] = {}
        self._pending: list[Step] = []

    def found(self, name: str) -> DiskFile | None:
        return self._now.get(name)

    def current(self) -> dict[str, DiskFile]:
        return dict(self._now)

    def create(self, name: str) -> DiskFile:
        file = SafeFile()
        self.lead(name, file)
        return file

    def lead(self, name: str, file: DiskFile | None) -> None:
        self.step({name: file})

    def rename(self, name: str, to: str) -> None:
        self.step({name: None, to: self._now[name]})

    def step(self, step: Step) -> None:
        _apply(self._now, step)
        self._pending.append(step)

    def synced(self, name: str, file: DiskFile) -> None:
        self.sync(name)

    def sync(self, name: str) -> None:
        for step in self._taken(name):
            _apply(self._durable, step)

    def lose(self, name: str, chance: random.Random) -> None:
        """A sync of the folder failed."""
        self._settle_steps(self._taken(name), chance)

    def cut(self, chance: random.Random) -> None:
        pending, self._pending = self._pending, []
        self._settle_steps(pending, chance)
        self._now = dict(self._durable)

    def _taken(self, name: str) -> list[Step]:
        """Remove and return the pending steps of the folder that the name is in."""
        folder = name.rpartition("/")[0]
        taken = [step for step in self._pending if next(iter(step)).rpartition("/")[0] == folder]
        self._pending = [step for step in self._pending if not any(step is other for other in taken)]
        return taken

    def _settle_steps(self, steps: list[Step], chance: random.Random) -> None:
        done = chance.randrange(len(steps) + 1) if chance.random() < IN_ORDER else 0
        share = chance.choice((0.0, 0.5, 0.9))
        lost: set[str] = set()
        for number, step in enumerate(steps):
            if number < done or (lost.isdisjoint(step) and chance.random() < share):
                _apply(self._durable, step)
            else:
                lost.update(step)

    def copy(self) -> "FolderNames":
        twins: dict[int, DiskFile] = {}
        names = FolderNames()
        names._now = {name: _twin(file, twins) for name, file in self._now.items()}
        names._durable = {name: _twin(file, twins) for name, file in self._durable.items()}
        names._pending = [
            {name: None if file is None else _twin(file, twins) for name, file in step.items()}
            for step in self._pending
        ]
        return names


def _apply(names: dict[str, DiskFile], step: Step) -> None:
    for name, file in step.items():
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file


def _twin(file: DiskFile, twins: dict[int, DiskFile]) -> DiskFile:
    return twins.setdefault(id(file), file.copy())


class FolderDisk(Disk):
    """A disk in memory. Every folder exists."""

    def __init__(self, seed: int | str = 0, *, sector: int = 512, lying_sync: bool = False) -> None:
        super().__init__(seed, sector=sector, lying_sync=lying_sync)
        self.folders = FolderNames()
        self.names = self.folders

    def start(self) -> "SimulatedFiles":
        """Turn the power on, for one run of a program."""
        with self.guard:
            self.on = True
            return SimulatedFiles(self)

    def copy(self, seed: int | str | None = None) -> Self:
        """Another disk with the same files and unsynced changes. Without a seed, a cut has the same outcome."""
        disk = type(self)(seed or 0, sector=self.sector, lying_sync=self.lying_sync)
        disk.copy_from(self, fate=seed is None)
        disk.folders = self.folders.copy()
        disk.names = disk.folders
        return disk

    def _fail(self, fault: Fault) -> NoReturn:
        if fault is Fault.POWER:
            self.cut()
        raise failure(_ERRORS.get(fault, errno.EIO))

    # Called by SimulatedFiles, with the guard held

    def create(self, name: str) -> DiskFile:
        self.truncates += 1
        fault = self._due(Fault.TRUNCATE) if self.armed else None
        file: DiskFile = SafeFile()
        if fault is not Fault.TRUNCATE:
            self.folders.lead(name, file)
        if fault is not None:
            self._fail(fault)
        return file

    def rename(self, name: str, to: str) -> None:
        self.deletes += 1
        fault = self._due(Fault.DELETE) if self.armed else None
        if fault is not Fault.DELETE:
            self.folders.rename(name, to)
        if fault is not None:
            self._fail(fault)

    def sync_folder(self, path: str) -> None:
        self.syncs += 1
        fault = self._due(Fault.SYNC) if self.armed else None
        if fault is Fault.SYNC:
            self.folders.lose(f"{path}/", self._chance)
        if fault is not None:
            self._fail(fault)
        if not self.lying_sync:
            self.folders.sync(f"{path}/")


class SimulatedFiles:
    """The `Files` of a journal on a FolderDisk, until the power is cut or the process is killed."""

    def __init__(self, disk: FolderDisk) -> None:
        self._disk = disk
        self._life = disk.life
        self._numbers = itertools.count(1)
        self._open: dict[int, DiskFile] = {}

    def _living(self) -> None:
        if self._life != self._disk.life:
            raise failure(errno.EIO)

    def _file(self, path: str) -> DiskFile:
        self._living()
        file = self._disk.names.found(path)
        if file is None:
            raise failure(errno.ENOENT)
        return file

    def is_folder(self, path: str) -> bool:
        self._living()
        return self._disk.names.found(path) is None

    def make_folder(self, path: str) -> None:
        self._living()

    def list(self, path: str) -> list[str]:
        with self._disk.guard:
            self._living()
            inside = [name.removeprefix(f"{path}/") for name in self._disk.files() if name.startswith(f"{path}/")]
            return sorted({name.partition("/")[0] for name in inside})

    def size(self, path: str) -> int:
        self._living()
        file = self._disk.names.found(path)
        return -1 if file is None else len(file.content)

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        disk = self._disk
        with disk.guard:
            content = self._file(path).content
            disk.reads += 1
            amount = len(content) - offset if size < 0 else size
            if disk.armed:
                amount = disk.readable(amount)
            return bytes(content[offset : offset + amount])

    def create(self, path: str, like: str = "") -> int:
        with self._disk.guard:
            self._living()
            return self._opened(self._disk.create(path))

    def open(self, path: str) -> int:
        with self._disk.guard:
            return self._opened(self._file(path))

    def _opened(self, file: DiskFile) -> int:
        handle = next(self._numbers)
        self._open[handle] = file
        return handle

    def write(self, handle: int, data: bytes) -> None:
        with self._disk.guard:
            self._living()
            file = self._open[handle]
            self._disk.write(file, bytes(data), len(file.content))

    def truncate(self, handle: int, size: int) -> None:
        """A journal truncates only bytes that were never synced."""
        with self._disk.guard:
            self._living()
            self._disk.truncate(self._open[handle], size)

    def sync(self, handle: int) -> None:
        with self._disk.guard:
            self._living()
            self._disk.sync(None, self._open[handle])

    def close(self, handle: int) -> None:
        del self._open[handle]

    def rename(self, path: str, to: str) -> None:
        with self._disk.guard:
            self._file(path)
            self._disk.rename(path, to)

    def remove(self, path: str) -> None:
        with self._disk.guard:
            self._file(path)
            self._disk.delete(path, durably=False)

    def sync_folder(self, path: str) -> None:
        with self._disk.guard:
            self._living()
            self._disk.sync_folder(path)

    def identity(self, path: str) -> tuple[int, int] | None:
        """The same for all: no other process replaces files on a simulated disk."""
        return 0, 0


def failure(number: int) -> OSError:
    return OSError(number, os.strerror(number))
