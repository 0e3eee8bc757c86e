"""A simulated disk for power cuts: it separates what programs have written from what a cut would leave.

The rule: only synced data is durable, and unsynced data ends in any state that a real disk can leave.

    write, truncate ──▶ content   what programs read: the cache of the operating system
         │
         └──────────▶ pending ── sync ──▶ durable   what is on the medium
                          └───── cut ───▶ durable   random for each sector; then content = durable

**Sectors.** A cut decides for each sector that was written since the last sync of its file: it has the old data, the
newest data, the data of a write in between, or is torn: new up to some byte, and from there old, zero or garbage. A
torn sector also damages other bytes of the sector, even synced ones, as on a disk without powersafe overwrite. Every
other synced byte survives. The share of sectors that is kept is random for each cut, from none to all, so that "all but
one sector" happens as well as "hardly any"; and in half of the cuts the first writes are kept completely, as on a disk
that writes in order.

**Sizes.** A file that grew or shrank since the last sync may have any of the sizes it had. If it is longer than its
kept data, the rest is zeros. A truncation is kept or lost as a whole.

**Names.** A creation or deletion is durable after a sync of its directory. The first sync of a new file includes that,
as SQLite does on Unix for its journals, and so does a deletion that is requested to be durable. Before that, after a
cut a name may lead to any file that it led to since: a new file may be missing, a deleted one may exist again.

**A failed sync** is not repeated by an operating system: its data may be lost although it can still be read, and no
later sync writes it. A failed write has written some first part of its data.

Time is counted in calls, and randomness comes from a seed: the same calls with the same seed have the same result.
"""

import random
import threading
from enum import StrEnum
from typing import Final, NamedTuple, NoReturn, Self

import apsw

from unibus.errors import UsageError

SECTOR_SIZES: Final = (512, 4096)

KEPT: Final = (0.0, 0.1, 0.5, 0.9, 1.0)
TORN: Final = (0.0, 0.05, 0.5)
"""The share of unsynced sectors that a cut keeps, and tears: one of each is drawn for a file and a cut."""

IN_ORDER: Final = 0.5
"""The share of cuts in which the first changes were written, and only the rest is random."""

ENTRIES_KEPT: Final = 4
"""How many files of a name are remembered since it was durable: a journal may be created and deleted without end."""

NEVER: Final = -1


class Fault(StrEnum):
    """The faults of `fail_at`; each counts the calls of its own kind."""

    WRITE = "write"
    FULL = "full"
    SYNC = "sync"
    TRUNCATE = "truncate"
    DELETE = "delete"
    READ = "read"
    SHORT_READ = "short_read"
    POWER = "power"
    """Used by `cut_at`; `fail_at` does not accept it."""


CODES: Final = {
    Fault.WRITE: apsw.SQLITE_IOERR_WRITE,
    Fault.FULL: apsw.SQLITE_FULL,
    Fault.SYNC: apsw.SQLITE_IOERR_FSYNC,
    Fault.TRUNCATE: apsw.SQLITE_IOERR_TRUNCATE,
    Fault.DELETE: apsw.SQLITE_IOERR_DELETE,
    Fault.READ: apsw.SQLITE_IOERR_READ,
    Fault.POWER: apsw.SQLITE_IOERR,
}

CALLS: Final = {Fault.FULL: Fault.WRITE, Fault.SHORT_READ: Fault.READ}
"""The calls that a fault applies to, if they have another name."""


class DiskPlan(NamedTuple):
    """A fault that happens at the `at`-th call of its kind."""

    fault: Fault
    at: int
    lasting: bool


class DiskFile:
    """The content of one file: as programs read it, and as it is on the medium."""

    __slots__ = ("content", "durable", "locks", "pending")

    def __init__(self, content: bytes | bytearray = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.pending: list[tuple[int, bytes | None]] = []
        """Since the last sync, in order: data at an offset, or None and the size that the file was set to."""
        self.locks: dict[object, int] = {}
        """The lock level of each handle. A cut gives the file a new dict: handles from before keep the old one."""

    def write(self, data: bytes, offset: int) -> None:
        change(self.content, offset, data)
        self.pending.append((offset, data))

    def truncate(self, size: int) -> None:
        change(self.content, size, None)
        self.pending.append((size, None))

    def sync(self) -> None:
        for offset, data in self.pending:
            change(self.durable, offset, data)
        self.pending.clear()

    def settle(self, chance: random.Random, sector: int) -> None:
        """Decide at random what of the pending changes becomes durable. The content does not change."""
        if self.pending:
            settle(self.durable, self.pending, chance, sector)
            self.pending.clear()

    def forget(self) -> None:
        """The cache is lost: the content becomes the durable data."""
        if self.content != self.durable:  # Comparing is cheaper than copying, and mostly they are equal.
            self.content[:] = self.durable
        self.locks = {}

    def copy(self) -> "DiskFile":
        twin = DiskFile(self.content)
        twin.durable = bytearray(self.durable)
        twin.pending = self.pending.copy()
        return twin


def change(content: bytearray, offset: int, data: bytes | None) -> None:
    """Write data at the offset; without data, set the size to the offset. A gap is filled with zeros."""
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset : offset + len(data)] = data


def settle(image: bytearray, pending: list[tuple[int, bytes | None]], chance: random.Random, sector: int) -> None:
    """Change the durable image to what a cut leaves of it and of the unsynced changes."""
    done = chance.randrange(len(pending) + 1) if chance.random() < IN_ORDER else 0
    for offset, data in pending[:done]:
        change(image, offset, data)
    fates = DiskFates(image, chance, sector)
    for offset, data in pending[done:]:
        if data is not None:
            fates.write(offset, data)
        elif offset < len(image):
            fates.shrink(offset)
        else:
            fates.grow(offset)
    fates.decide()


class DiskFates:
    """The values that sectors and size of one file may have after a cut, collected change by change."""

    def __init__(self, image: bytearray, chance: random.Random, sector: int) -> None:
        self._image, self._chance, self._sector = image, chance, sector
        self._sizes = [len(image)]
        self._versions: dict[int, list[bytes]] = {}
        self._hidden: int | None = None
        """A truncation was lost: data after this offset keeps its old value."""

    def write(self, offset: int, data: bytes) -> None:
        image, sector = self._image, self._sector
        data = data if self._hidden is None else data[: max(self._hidden - offset, 0)]
        touched = range(offset // sector, -(-(offset + len(data)) // sector)) if data else ()
        for number in touched:
            self._versions.setdefault(number, [sector_of(image, number, sector)])
        if data:
            change(image, offset, data)
        for number in touched:
            self._versions[number].append(sector_of(image, number, sector))
        self._sizes.append(len(image))

    def grow(self, size: int) -> None:
        if self._hidden is None:
            change(self._image, size, None)
            self._sizes.append(size)

    def shrink(self, size: int) -> None:
        """Lost or done as a whole: a file system frees all blocks at once. Size changes keep their order."""
        if self._hidden is not None or self._chance.random() < 0.5:
            self._hidden = size if self._hidden is None else min(self._hidden, size)
            return
        change(self._image, size, None)
        for number in [number for number in self._versions if number * self._sector >= size]:
            del self._versions[number]
        self._sizes = [size]

    def decide(self) -> None:
        image, chance = self._image, self._chance
        kept, torn = chance.choice(KEPT), chance.choice(TORN)
        for number, values in self._versions.items():
            change(image, number * self._sector, fate(values, kept, torn, chance))
        change(image, self._sizes[drawn(len(self._sizes), kept, chance)], None)


def sector_of(image: bytearray, number: int, sector: int) -> bytes:
    return bytes(image[number * sector : (number + 1) * sector]).ljust(sector, b"\0")


def drawn(count: int, kept: float, chance: random.Random) -> int:
    """The index of a value, from the oldest to the newest: mostly one of these two."""
    if chance.random() < kept:
        return count - 1
    return 0 if chance.random() < 0.75 else chance.randrange(count)


def fate(values: list[bytes], kept: float, torn: float, chance: random.Random) -> bytes:
    """One of the values that a sector had, or a torn mix of two of them."""
    at = drawn(len(values), kept, chance)
    value = values[at]
    if chance.random() >= torn:
        return value
    before, after = (values[at - 1], value) if at else (value, values[1])
    place = chance.randrange(1, len(after))
    rest = chance.choice((before[place:], bytes(len(after) - place), chance.randbytes(len(after) - place)))
    return after[:place] + rest


class DiskNames:
    """The file of each name, now and in every state since the name was durable."""

    def __init__(self) -> None:
        self._files: dict[str, list[DiskFile | None]] = {}
        """From the durable entry to the current one; None for no file."""

    def found(self, name: str) -> DiskFile | None:
        """The file that has this name now."""
        return files[-1] if (files := self._files.get(name)) else None

    def current(self) -> dict[str, DiskFile]:
        return {name: file for name, files in self._files.items() if (file := files[-1]) is not None}

    def create(self, name: str) -> DiskFile:
        file = DiskFile()
        self.lead(name, file)
        return file

    def lead(self, name: str, file: DiskFile | None) -> None:
        """Set the file of a name, or None. Not durably."""
        files = self._files.setdefault(name, [None])
        files.append(file)
        del files[1:-ENTRIES_KEPT]

    def synced(self, name: str, file: DiskFile) -> None:
        """A file was synced; if it is new, its directory was too."""
        if self.found(name) is file and len(self._files[name]) > 1:
            self.sync(name)

    def sync(self, name: str) -> None:
        """Make the current entries of the name's directory durable."""
        folder = name.rpartition("/")[0]
        for other in [name for name in self._files if name.rpartition("/")[0] == folder]:
            self._settle(other, self._files[other][-1])

    def cut(self, chance: random.Random) -> None:
        for name, files in list(self._files.items()):
            self._settle(name, chance.choice(files))

    def _settle(self, name: str, file: DiskFile | None) -> None:
        if file is None:
            del self._files[name]
        else:
            self._files[name] = [file]

    def copy(self) -> "DiskNames":
        names = DiskNames()
        for name, files in self._files.items():
            names._files[name] = [file and file.copy() for file in files]
        return names


class Disk:
    """Files and their names, the power, and planned faults. `SimulatedDisk` connects it to SQLite."""

    def __init__(self, seed: int | str, *, sector: int = 512, lying_sync: bool = False) -> None:
        if sector not in SECTOR_SIZES:
            raise UsageError(f"sector must be one of {SECTOR_SIZES}, got {sector!r}")
        self.sector = sector
        self.lying_sync = lying_sync
        """Whether a sync succeeds and makes nothing durable: a test of durability must fail then."""
        self.reads = self.writes = self.syncs = self.truncates = self.deletes = 0
        """How often each was called, including failed calls. All but the reads are the steps of `cut_at`."""
        self.life = 0
        """Counts cuts and kills: a handle with a smaller number is invalid."""
        self.on = True
        """False from a cut until a database is opened again."""
        self.guard = threading.RLock()
        self.armed = False
        self._chance = random.Random(seed)
        self._plans: list[DiskPlan] = []
        self._cut_step = NEVER
        self.names = DiskNames()

    # Power

    def cut(self) -> None:
        """Cut the power now. Open handles become invalid, unsynced data becomes random, and plans are removed."""
        with self.guard:
            self.names.cut(self._chance)
            for file in self.names.current().values():
                file.settle(self._chance, self.sector)
                file.forget()
            self._halt()

    def kill(self) -> None:
        """Kill the process, not the machine: handles become invalid, and everything that was written stays."""
        with self.guard:
            for file in self.names.current().values():
                file.locks = {}
            self._halt()

    def cut_at(self, step: int) -> None:
        """Cut the power during a write, sync, truncate or delete: the `step`-th from now, 1 is the next."""
        with self.guard:
            self._cut_step = self.steps + positive(step)
            self.armed = True

    @property
    def steps(self) -> int:
        """The number of calls so far that change the disk: each can be the target of `cut_at`."""
        return self.writes + self.syncs + self.truncates + self.deletes

    def _halt(self) -> None:
        self.life += 1
        self.on = False
        self.heal()

    # Faults

    def fail_at(self, call: int, fault: Fault | str, *, lasting: bool = False) -> None:
        """Make the `call`-th call from now of the fault's kind fail; with `lasting`, also each one after it."""
        fault = Fault(fault)
        if fault is Fault.POWER:
            raise UsageError("Fault.POWER cannot be planned by a call: a step cuts the power", "use cut_at()")
        with self.guard:
            self._plans.append(DiskPlan(fault, self._count(CALLS.get(fault, fault)) + positive(call), lasting))
            self.armed = True

    def heal(self) -> None:
        """Remove all planned faults."""
        with self.guard:
            self._plans.clear()
            self._cut_step = NEVER
            self.armed = False

    def _count(self, call: Fault) -> int:
        count: int = getattr(self, f"{call}s")
        return count

    def _due(self, call: Fault) -> Fault | None:
        """The fault of the call that was just counted."""
        if call is not Fault.READ and self.steps == self._cut_step:
            return Fault.POWER
        count = self._count(call)
        for fault, at, lasting in self._plans:
            if CALLS.get(fault, fault) is call and (count == at or (lasting and count > at)):
                return fault
        return None

    def _fail(self, fault: Fault) -> NoReturn:
        if fault is Fault.POWER:
            self.cut()
        raise apsw.exception_for(CODES[fault])

    # Called by the handles, with the guard held

    def readable(self, amount: int) -> int:
        """How many bytes an armed disk gives to the read that was just counted."""
        fault = self._due(Fault.READ)
        if fault is Fault.READ:
            self._fail(fault)
        return amount if fault is None else amount // 2

    def write(self, file: DiskFile, data: bytes, offset: int) -> None:
        self.writes += 1
        fault = self._due(Fault.WRITE) if self.armed else None
        if fault is None:
            file.write(data, offset)
            return
        # A write without space has written a part of its data; one that fails in another way may have written all.
        most = len(data) if fault is Fault.FULL else len(data) + 1
        file.write(data if fault is Fault.POWER else data[: self._chance.randrange(most)], offset)
        self._fail(fault)

    def truncate(self, file: DiskFile, size: int) -> None:
        self.truncates += 1
        fault = self._due(Fault.TRUNCATE) if self.armed else None
        if fault is not Fault.TRUNCATE:
            file.truncate(size)
        if fault is not None:
            self._fail(fault)

    def sync(self, name: str | None, file: DiskFile) -> None:
        self.syncs += 1
        fault = self._due(Fault.SYNC) if self.armed else None
        if fault is Fault.SYNC:
            file.settle(self._chance, self.sector)
        if fault is not None:
            self._fail(fault)
        if not self.lying_sync:
            file.sync()
            if name is not None:
                self.names.synced(name, file)

    def delete(self, name: str, *, durably: bool) -> None:
        self.deletes += 1
        fault = self._due(Fault.DELETE) if self.armed else None
        if fault is not Fault.DELETE:
            self.names.lead(name, None)
        if fault is not None:
            self._fail(fault)
        if durably and not self.lying_sync:
            self.names.sync(name)

    # Inspecting and damaging files, for tests

    def files(self) -> list[str]:
        """The names of all current files."""
        with self.guard:
            return list(self.names.current())

    def content(self, name: str) -> bytes:
        """The current content of a file."""
        with self.guard:
            file = self.names.found(name)
            if file is None:
                raise UsageError(f"there is no file {name!r} on this disk", f"its files are {self.files()}")
            return bytes(file.content)

    def put(self, name: str, content: bytes | bytearray) -> None:
        """Replace or create a whole file, durably."""
        with self.guard:
            file = self.names.found(name) or self.names.create(name)
            file.content[:] = content
            file.durable[:] = content
            file.pending.clear()
            self.names.synced(name, file)

    def flip(self, name: str, offset: int, bit: int = 0) -> None:
        """Flip one bit of a file."""
        content = bytearray(self.content(name))
        if not 0 <= offset < len(content):
            raise UsageError(f"offset {offset} is outside of {name!r}, which has {len(content)} bytes")
        content[offset] ^= 1 << bit
        self.put(name, content)

    def shorten(self, name: str, size: int) -> None:
        """Cut off the end of a file."""
        self.put(name, self.content(name)[:size])

    def zero(self, name: str, offset: int, length: int = 4096) -> None:
        """Overwrite a part of a file with zeros, by default a page; the size stays."""
        content = self.content(name)
        end = min(offset + length, len(content))
        self.put(name, content[:offset] + bytes(max(end - offset, 0)) + content[end:])

    def copy_from(self, other: "Disk", *, fate: bool) -> Self:
        """Copy every file with its unsynced changes; with `fate`, also the state of the random generator."""
        with other.guard:
            self.names = other.names.copy()
            if fate:
                self._chance.setstate(other._chance.getstate())
        return self


def positive(number: int) -> int:
    if number < 1:
        raise UsageError(f"the number of a call must be 1 or more, got {number!r}", "the next call is 1")
    return number
