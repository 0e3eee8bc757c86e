"""The simulated disk: SQLite is durable on it with correct settings, loses data with wrong ones, and tests see both."""

import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import apsw
import pytest

from unibus.errors import UsageError
from unibus.testing.disk import DiskFile
from unibus.testing.power import Fault, SimulatedDisk

WAL_FULL = ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=12")
DELETE_EXTRA = ("journal_mode=DELETE", "synchronous=EXTRA")
DELETE_FULL = ("journal_mode=DELETE", "synchronous=FULL")
HALVES = 2
"""Rows of one transaction: after a cut there are both or none."""


def opened(disk: SimulatedDisk, pragmas: tuple[str, ...] = WAL_FULL) -> apsw.Connection:
    connection = apsw.Connection("bus.db", vfs=disk.name)
    try:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.execute("CREATE TABLE IF NOT EXISTS log(number, half, body)")
    except BaseException:
        ended(connection)
        raise
    return connection


def ended(connection: apsw.Connection) -> None:
    """Closed after an error: with a rollback journal, closing may be one error more."""
    try:
        connection.close()
    except apsw.IOError:
        pass


@contextmanager
def on(disk: SimulatedDisk, pragmas: tuple[str, ...] = WAL_FULL) -> Iterator[apsw.Connection]:
    with closing(opened(disk, pragmas)) as connection:
        yield connection


def body(number: int) -> bytes:
    """From a few bytes to more than a page, and different for each."""
    return random.Random(number).randbytes(number * 977 % 5000)


def commit(connection: apsw.Connection, number: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for half in range(HALVES):
        connection.execute("INSERT INTO log VALUES (?, ?, ?)", (number, half, body(number)))
    connection.execute("COMMIT")


def committed(connection: apsw.Connection) -> int:
    """How many transactions are there, after a look at every byte of them."""
    assert connection.pragma("integrity_check") == "ok"
    rows = connection.execute("SELECT number, half, body FROM log ORDER BY number, half").fetchall()
    count, rest = divmod(len(rows), HALVES)
    assert rest == 0, "half a transaction"
    assert rows == [(number, half, body(number)) for number in range(1, count + 1) for half in range(HALVES)]
    return count


def commits(connection: apsw.Connection, number: int) -> int:
    """Commit after this number until the power fails; the last number that was acknowledged."""
    while True:
        try:
            commit(connection, number + 1)
        except apsw.IOError:
            return number
        number += 1


class Cut(NamedTuple):
    """The transactions that were acknowledged when the power failed, and those that were there afterwards."""

    acknowledged: int
    found: int


def cuts(seed: int | str, count: int, pragmas: tuple[str, ...] = WAL_FULL, **options: Any) -> list[Cut]:
    """Commit until the power fails at some step, start again, look; and the next cut."""
    return cuts_on(SimulatedDisk(seed, **options), random.Random(seed), count, pragmas)


def cuts_on(disk: SimulatedDisk, chance: random.Random, count: int, pragmas: tuple[str, ...]) -> list[Cut]:
    seen, number = [], 0
    for _ in range(count):
        connection = opened(disk, pragmas)
        disk.cut_at(chance.randrange(1, 50))
        number = commits(connection, number)
        ended(connection)
        with on(disk, pragmas) as connection:
            seen.append(Cut(number, committed(connection)))
        number = seen[-1].found
    return seen


@pytest.mark.parametrize("sector", [512, 4096])
def test_wal_with_full_sync_never_loses_a_commit(sector):
    seen = [cut for seed in range(12) for cut in cuts(seed, 25, sector=sector)]
    # The transaction in which the power failed may be there or not, and both happens.
    assert {found - acknowledged for acknowledged, found in seen} == {0, 1}
    assert len(seen) == 300


def test_a_rollback_journal_with_extra_sync_never_loses_a_commit():
    seen = [cut for seed in range(6) for cut in cuts(seed, 20, DELETE_EXTRA)]
    assert {found - acknowledged for acknowledged, found in seen} <= {0, 1}


def test_a_rollback_journal_with_full_sync_may_lose_the_last_commit_and_no_more():
    """Its name is deleted without syncing the directory, so that the journal may be back and undo the commit."""
    seen = [cut for seed in range(10) for cut in cuts(seed, 20, DELETE_FULL)]
    lost = Counter(acknowledged - found for acknowledged, found in seen)
    assert set(lost) <= {-1, 0, 1}
    assert lost[1]


@pytest.mark.parametrize(
    ("pragmas", "lying_sync"), [((*WAL_FULL, "synchronous=OFF"), False), (WAL_FULL, True), (DELETE_EXTRA, True)]
)
def test_what_is_not_synced_is_lost_or_damaged(pragmas, lying_sync):
    """The proof that the tests above can fail."""
    harm = Counter()
    for seed in range(40):
        try:
            (cut,) = cuts(seed, 1, pragmas, lying_sync=lying_sync)
            harm["lost" if cut.found < cut.acknowledged else "kept"] += 1
        except (apsw.CorruptError, apsw.NotADBError, AssertionError):
            harm["damaged"] += 1
    assert harm["lost"]
    assert harm["damaged"]


class Progress:
    """A small piece of work that reaches every kind of call: files made and deleted, commits, checkpoints, an end."""

    def __init__(self, pragmas: tuple[str, ...] = WAL_FULL) -> None:
        self.pragmas = pragmas
        self.acknowledged = 0

    def run(self, disk: SimulatedDisk) -> None:
        with on(disk, self.pragmas) as connection:
            for number in range(1, 7):
                commit(connection, number)
                self.acknowledged = number


def whole(pragmas: tuple[str, ...] = WAL_FULL) -> SimulatedDisk:
    """The disk after the work, for its counters and its content."""
    disk = SimulatedDisk()
    Progress(pragmas).run(disk)
    return disk


@pytest.mark.parametrize("pragmas", [WAL_FULL, DELETE_EXTRA], ids=["wal", "delete"])
def test_a_cut_at_every_step(pragmas):
    for step in range(1, whole(pragmas).steps + 1):
        disk, work = SimulatedDisk(step), Progress(pragmas)
        disk.cut_at(step)
        with pytest.raises(apsw.IOError):
            work.run(disk)
        with on(disk, pragmas) as connection:
            assert committed(connection) - work.acknowledged in (0, 1), step


@pytest.mark.parametrize(
    ("fault", "calls", "error"),
    [
        (Fault.WRITE, "writes", apsw.SQLITE_IOERR_WRITE),
        (Fault.FULL, "writes", apsw.SQLITE_FULL),
        (Fault.SYNC, "syncs", apsw.SQLITE_IOERR_FSYNC),
        (Fault.TRUNCATE, "truncates", apsw.SQLITE_IOERR_TRUNCATE),
        (Fault.DELETE, "deletes", apsw.SQLITE_IOERR_DELETE),
        (Fault.READ, "reads", apsw.SQLITE_IOERR_READ),
    ],
)
def test_a_fault_at_every_call(fault, calls, error):
    sites = getattr(whole(), calls)
    assert sites
    for call in range(1, sites + 1):
        disk, work = SimulatedDisk(call), Progress()
        disk.fail_at(call, fault)
        with pytest.raises((apsw.IOError, apsw.FullError)) as caught:
            work.run(disk)
        assert caught.value.extendedresult == error
        for _ in range(2):
            with on(disk) as connection:
                assert committed(connection) - work.acknowledged in (0, 1), call
            disk.cut()


def test_a_disk_that_is_full_stays_full_until_it_is_healed():
    disk = SimulatedDisk()
    with on(disk) as connection:
        commit(connection, 1)
        disk.fail_at(1, "full", lasting=True)
        for _ in range(3):
            with pytest.raises(apsw.FullError):
                connection.execute("INSERT INTO log VALUES (2, 0, 'x')")
        assert committed(connection) == 1
        disk.heal()
        commit(connection, 2)
        assert committed(connection) == 2


def test_a_fault_strikes_once_and_at_its_call():
    disk = SimulatedDisk()
    with on(disk) as connection:
        disk.fail_at(2, "sync")
        commit(connection, 1)
        with pytest.raises(apsw.IOError):
            commit(connection, 2)
        assert connection.in_transaction is False
        commit(connection, 2)
        assert committed(connection) == 2


def test_a_short_read_is_half_of_it():
    disk = whole()
    with closing(apsw.Connection("bus.db", vfs=disk.name)) as connection:
        connection.pragma("locking_mode", "EXCLUSIVE")
        disk.fail_at(2, Fault.SHORT_READ, lasting=True)
        # The missing half is zeros to SQLite, and cells are in the second half of a page.
        with pytest.raises(apsw.CorruptError):
            connection.execute("SELECT sum(length(body)) FROM log").fetchall()
    disk.heal()
    with on(disk) as connection:
        assert committed(connection) == 6


def outcome(seed: int | str) -> tuple[list[Cut], tuple[int, ...], bytes]:
    disk = SimulatedDisk(seed)
    # A rollback journal: the database holds no chance of SQLite's own.
    seen = cuts_on(disk, random.Random(seed), 15, DELETE_FULL)
    return seen, (disk.reads, disk.writes, disk.syncs, disk.truncates, disk.deletes), disk.content("bus.db")


def test_the_same_seed_ends_the_same():
    assert outcome(3) == outcome(3)
    assert outcome("three") == outcome("three")
    assert len({outcome(seed)[1] for seed in range(4)}) > 1


# Power


def test_after_a_cut_every_handle_is_dead_and_a_new_one_works():
    disk = SimulatedDisk()
    connection = opened(disk)
    commit(connection, 1)
    disk.cut()
    assert not disk.on
    for _ in range(2):
        with pytest.raises(apsw.IOError):
            commit(connection, 2)
    connection.close()
    with on(disk) as connection:
        assert disk.on
        assert committed(connection) == 1


@pytest.mark.parametrize("pragmas", [DELETE_FULL, ("journal_mode=MEMORY",), ("journal_mode=TRUNCATE",)])
def test_a_dead_connection_cannot_even_read(pragmas):
    disk = SimulatedDisk()
    connection = opened(disk, pragmas)
    disk.cut()
    with pytest.raises(apsw.IOError):
        connection.execute("SELECT * FROM log").fetchall()
    ended(connection)


def test_without_power_only_a_database_can_be_opened():
    """A connection from before a cut that opens its journal by name must not change the files after it."""
    disk = whole()
    disk.cut()
    with pytest.raises(apsw.CantOpenError):
        disk.xOpen("bus.db-journal", [apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_MAIN_JOURNAL, 0])
    for call in (lambda: disk.xDelete("bus.db", False), lambda: disk.xAccess("bus.db", 0)):
        with pytest.raises(apsw.IOError):
            call()
    assert disk.files() == ["bus.db"]


def test_a_killed_process_leaves_what_it_wrote():
    disk = SimulatedDisk(lying_sync=True)
    connection = opened(disk)
    for number in range(1, 4):
        commit(connection, number)
    disk.kill()
    with pytest.raises(apsw.IOError):
        commit(connection, 4)
    connection.close()
    with on(disk) as connection:
        assert committed(connection) == 3


@pytest.mark.parametrize("end", [SimulatedDisk.cut, SimulatedDisk.kill])
def test_the_locks_of_the_dead_are_gone(end):
    disk = SimulatedDisk()
    connection = opened(disk)
    commit(connection, 1)
    end(disk)
    with on(disk) as new:
        assert committed(new) == 1
        connection.close()
        commit(new, 2)


def test_a_cut_forgets_what_was_planned():
    disk = SimulatedDisk()
    disk.fail_at(1, "write")
    disk.cut_at(1)
    disk.cut()
    Progress().run(disk)


def test_a_cut_from_another_thread():
    for seed in range(10):
        disk = SimulatedDisk(seed)
        connection = opened(disk)
        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(commits, connection, 0)
            begun = disk.syncs
            while disk.syncs < begun + 6 and not writer.done():
                time.sleep(0)
            disk.cut()
            acknowledged = writer.result(10)
        connection.close()
        assert acknowledged
        with on(disk) as connection:
            assert committed(connection) - acknowledged in (0, 1)


def test_a_copy_shows_another_outcome_of_the_same_moment():
    disk = SimulatedDisk(1)
    with on(disk, (*WAL_FULL, "synchronous=OFF", "wal_autocheckpoint=0")) as connection:
        for number in range(1, 9):
            commit(connection, number)
        found = Counter()
        for seed in range(40):
            copy = disk.copy(seed)
            copy.cut()
            with on(copy) as after:
                found[committed(after)] += 1
        twins = disk.copy(), disk.copy()
        for twin in twins:
            twin.cut()
        assert {name: twins[0].content(name) for name in twins[0].files()} == {
            name: twins[1].content(name) for name in twins[1].files()
        }
        assert committed(connection) == 8, "the disk that was copied goes on"
    assert len(found) > 2
    assert {0, 8} <= set(found)


def test_the_vfs_goes_with_the_disk():
    disk = SimulatedDisk()
    name = disk.name
    with on(disk) as connection:
        del disk
        gc.collect()
        commit(connection, 1)
        assert name in apsw.vfs_names()
    del connection
    assert name not in apsw.vfs_names()


# The model of a file and of names, without SQLite

NEW, OLD = b"n" * 512, b"o" * 512


def fates(change: Callable[[DiskFile], object], content: bytes = OLD * 4, count: int = 300) -> Counter[bytes]:
    """What is left of a file, over many cuts, when it was changed like this after a sync."""
    left: Counter[bytes] = Counter()
    for seed in range(count):
        file = DiskFile(content)
        change(file)
        file.settle(random.Random(seed), 512)
        file.forget()
        left[bytes(file.content)] += 1
    return left


def test_sectors_meet_their_fate_one_by_one():
    left = fates(lambda file: file.write(NEW * 2, 512))
    for first in (OLD, NEW):
        for second in (OLD, NEW):
            assert left[OLD + first + second + OLD]
    assert all(one.startswith(OLD) and one.endswith(OLD) and len(one) == 2048 for one in left)


def test_a_sector_is_torn_into_new_and_old_or_zero_or_garbage():
    rests = Counter()
    for one in fates(lambda file: file.write(NEW, 512)):
        rest = one[512:1024].lstrip(b"n")
        if 0 < len(rest) < 512:
            rests["old" if not rest.strip(b"o") else "zero" if not rest.strip(b"\0") else "garbage"] += 1
    assert set(rests) == {"old", "zero", "garbage"}


def test_a_write_in_between_may_be_what_is_left():
    left = fates(lambda file: (file.write(NEW, 0), file.write(b"x" * 512, 0)))
    assert {one[:512] for one in left} >= {OLD, NEW, b"x" * 512}


def test_what_is_synced_survives():
    def change(file: DiskFile) -> None:
        file.write(NEW, 0)
        file.truncate(1024)
        file.sync()

    assert set(fates(change)) == {NEW + OLD}


def test_a_file_may_have_any_size_it_had():
    assert set(fates(lambda file: file.truncate(512))) == {OLD, OLD * 4}, "a shrunk file is whole, or has its end back"
    grown = fates(lambda file: (file.write(NEW, 2048), file.write(NEW, 3584)))
    assert {len(one) for one in grown} == {2048, 2560, 4096}
    assert all(one[2560:3584] == bytes(len(one[2560:3584])) for one in grown)
    shrunk = fates(lambda file: (file.truncate(0), file.write(NEW, 0)))
    assert {len(one) for one in shrunk} == {0, 512, 2048}
    assert {one for one in shrunk if len(one) == 2048} == {OLD * 4}, "what came after went to another place"


def test_what_a_file_was_shrunk_by_does_not_come_back_in_parts():
    def change(file: DiskFile) -> None:
        file.write(NEW, 1024)
        file.truncate(512)
        file.write(NEW, 1536)

    gaps = {one[512:1536] for one in fates(change) if len(one) == 2048 and one[512:1024] != OLD}
    assert gaps == {bytes(1024)}


def test_a_sync_that_failed_is_not_made_up_for_by_the_next_one():
    lost = 0
    for seed in range(40):
        disk = SimulatedDisk(seed)
        file = disk.names.create("a")
        disk.sync("a", file)
        disk.write(file, NEW, 0)
        disk.fail_at(1, "sync")
        with pytest.raises(apsw.IOError):
            disk.sync("a", file)
        assert disk.content("a") == NEW, "it is still read back"
        disk.sync("a", file)
        disk.cut()
        lost += disk.content("a") != NEW
    assert 0 < lost < 40


def test_a_write_that_failed_has_written_some_first_part():
    lengths = set()
    for seed in range(20):
        disk = SimulatedDisk(seed)
        file = disk.names.create("a")
        disk.fail_at(1, "full")
        with pytest.raises(apsw.FullError):
            disk.write(file, NEW, 0)
        assert NEW.startswith(disk.content("a"))
        lengths.add(len(disk.content("a")))
    assert len(lengths) > 5


def names_left(change: Callable[[SimulatedDisk], object]) -> set[tuple[str, ...]]:
    left = set()
    for seed in range(40):
        disk = SimulatedDisk(seed)
        disk.put("here", b"x")
        change(disk)
        disk.cut()
        left.add(tuple(disk.files()))
    return left


def test_a_new_file_that_was_never_synced_may_vanish():
    assert names_left(lambda disk: disk.names.create("new")) == {("here",), ("here", "new")}


def test_a_deleted_file_may_be_back_unless_the_directory_was_synced():
    assert names_left(lambda disk: disk.delete("here", durably=False)) == {(), ("here",)}
    assert names_left(lambda disk: disk.delete("here", durably=True)) == {()}


def test_the_first_sync_of_a_new_file_syncs_its_directory():
    def change(disk: SimulatedDisk) -> None:
        disk.put("else/where", b"x")
        disk.delete("here", durably=False)
        disk.delete("else/where", durably=False)
        disk.sync("new", disk.names.create("new"))

    assert names_left(change) == {("new",), ("else/where", "new")}


# Damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda disk: disk.flip("bus.db", 4096),  # The kind of the second page.
        lambda disk: disk.zero("bus.db", 4096),
        lambda disk: disk.shorten("bus.db", 8192),
    ],
)
def test_damage_is_found_in_a_copy_and_not_in_the_original(damage):
    disk = whole()
    copy = disk.copy()
    damage(copy)
    assert copy.content("bus.db") != disk.content("bus.db")
    with pytest.raises((apsw.Error, AssertionError)), on(copy) as connection:
        committed(connection)
    with on(disk) as connection:
        assert committed(connection) == 6


def test_damage_is_durable_and_as_large_as_was_said():
    disk = SimulatedDisk()
    disk.put("a", OLD)
    disk.flip("a", 3, bit=1)
    disk.zero("a", 500, 100)
    assert len(disk.content("a")) == 512
    disk.shorten("a", 510)
    disk.cut()
    assert disk.content("a") == b"ooom" + OLD[4:500] + bytes(10)


# Several connections, and arguments


def test_locks_keep_writers_apart():
    disk = SimulatedDisk()
    with on(disk, DELETE_FULL) as one, on(disk, DELETE_FULL) as two:
        commit(one, 1)
        one.execute("BEGIN IMMEDIATE")
        assert committed(two) == 1
        with pytest.raises(apsw.BusyError):
            two.execute("BEGIN IMMEDIATE")
        one.execute("COMMIT")
        reader = two.execute("SELECT number FROM log")
        one.execute("BEGIN IMMEDIATE; DELETE FROM log")
        for _ in range(2):
            with pytest.raises(apsw.BusyError):
                one.execute("COMMIT")
        reader.close()
        one.execute("COMMIT")
        assert committed(two) == 0


def test_a_memory_of_its_own_for_each_disk():
    first, second = whole(), SimulatedDisk()
    assert first.name != second.name
    assert first.files() == ["bus.db"]
    assert second.files() == []


def test_a_file_is_made_only_when_asked_for_and_once_when_asked_so():
    disk = SimulatedDisk()
    with pytest.raises(apsw.CantOpenError):
        apsw.Connection("bus.db", flags=apsw.SQLITE_OPEN_READWRITE, vfs=disk.name)
    disk.put("a", b"x")
    with pytest.raises(apsw.CantOpenError):
        disk.xOpen("a", [apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_EXCLUSIVE, 0])
    disk.xOpen("a", [apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_DELETEONCLOSE, 0]).xClose()
    assert disk.files() == []


def test_sqlite_is_promised_nothing():
    for sector in (512, 4096):
        disk = SimulatedDisk(sector=sector)
        handle = disk.xOpen("a", [apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_MAIN_DB, 0])
        assert handle.xDeviceCharacteristics() == 0
        assert handle.xSectorSize() == sector


@pytest.mark.parametrize(
    "call",
    [
        lambda disk: SimulatedDisk(sector=1000),
        lambda disk: disk.cut_at(0),
        lambda disk: disk.fail_at(0, "write"),
        lambda disk: disk.fail_at(1, "power"),
        lambda disk: disk.content("none"),
        lambda disk: disk.flip("a", 2),
    ],
)
def test_wrong_calls_are_told(call):
    disk = SimulatedDisk()
    disk.put("a", b"xy")
    with pytest.raises(UsageError):
        call(disk)
    with pytest.raises(ValueError, match="flood"):
        disk.fail_at(1, "flood")


def test_sqlite_reads_the_time_through_the_disk():
    with on(SimulatedDisk()) as connection:
        assert abs(connection.execute("SELECT unixepoch('now') - ?", (time.time(),)).get) < 3600
