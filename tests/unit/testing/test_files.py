"""The simulated folder: what was synced stays, everything else may go, and a rename is never done by half."""

import errno
from collections.abc import Callable

import pytest

from unibus.testing.disk import Fault
from unibus.testing.files import FolderDisk, SimulatedFiles

SEEDS = range(60)


def write(files: SimulatedFiles, path: str, data: bytes, *, sync: bool) -> None:
    handle = files.create(path)
    files.write(handle, data)
    if sync:
        files.sync(handle)
    files.close(handle)


def outcomes(work: Callable[[SimulatedFiles], None], look: Callable[[SimulatedFiles], object]) -> list[object]:
    """What the same work leaves behind after a cut, by all the seeds."""
    found = []
    for seed in SEEDS:
        disk = FolderDisk(seed)
        work(disk.start())
        disk.cut()
        found.append(look(disk.start()))
    return found


def content(path: str) -> Callable[[SimulatedFiles], object]:
    return lambda files: files.read(path) if files.size(path) >= 0 else None


def test_a_file_whose_content_and_name_were_synced_is_there() -> None:
    def work(files: SimulatedFiles) -> None:
        write(files, "f/a", b"x" * 3_000, sync=True)
        files.sync_folder("f")

    assert set(outcomes(work, content("f/a"))) == {b"x" * 3_000}


def test_a_name_that_was_not_synced_may_be_gone() -> None:
    found = outcomes(lambda files: write(files, "f/a", b"data", sync=True), content("f/a"))
    assert set(found) == {None, b"data"}


def test_content_that_was_not_synced_may_be_anything_under_a_durable_name() -> None:
    def work(files: SimulatedFiles) -> None:
        write(files, "f/a", b"x" * 3_000, sync=False)
        files.sync_folder("f")

    found = outcomes(work, content("f/a"))
    assert None not in found
    assert {b"", b"x" * 3_000} < set(found), "and torn ones"


def test_what_was_appended_hurts_nothing_that_was_synced() -> None:
    def work(files: SimulatedFiles) -> None:
        handle = files.create("f/a")
        files.write(handle, b"synced")
        files.sync(handle)
        files.sync_folder("f")
        files.write(handle, b"more" * 400)

    found = outcomes(work, content("f/a"))
    assert all(isinstance(each, bytes) and each.startswith(b"synced") for each in found)
    assert len(set(found)) > 3


def test_a_rename_is_done_as_a_whole_or_not_at_all() -> None:
    def work(files: SimulatedFiles) -> None:
        write(files, "f/a", b"old", sync=True)
        files.sync_folder("f")
        write(files, "f/a.new", b"new", sync=True)
        files.rename("f/a.new", "f/a")
        write(files, "g/other", b"", sync=False)
        files.sync_folder("g")

    found = outcomes(work, lambda files: (content("f/a")(files), content("f/a.new")(files)))
    assert set(found) == {(b"old", None), (b"old", b"new"), (b"new", None)}


def test_removals_come_back_unless_their_folder_was_synced() -> None:
    def work(files: SimulatedFiles) -> None:
        for path in ("f/a", "g/b"):
            write(files, path, b"data", sync=True)
        files.sync_folder("f")
        files.sync_folder("g")
        files.remove("f/a")
        files.remove("g/b")
        files.sync_folder("g")

    back = outcomes(work, lambda files: tuple(files.list("f")))
    assert set(back) == {(), ("a",)}
    assert all(found == [] for found in outcomes(work, lambda files: files.list("g")))


def test_a_sync_that_failed_is_not_made_up_for_by_the_next() -> None:
    lost = 0
    for seed in SEEDS:
        disk = FolderDisk(seed)
        files = disk.start()
        handle = files.create("f/a")
        files.sync_folder("f")
        files.write(handle, b"x" * 2_000)
        disk.fail_at(1, Fault.SYNC)
        with pytest.raises(OSError, match="Input/output error"):
            files.sync(handle)
        files.sync(handle)
        assert files.read("f/a") == b"x" * 2_000, "it is still read back"
        disk.cut()
        lost += disk.start().read("f/a") != b"x" * 2_000
    assert lost > 10


@pytest.mark.parametrize(
    ("fault", "call", "number"),
    [
        (Fault.FULL, lambda files, handle: files.write(handle, b"data"), errno.ENOSPC),
        (Fault.WRITE, lambda files, handle: files.write(handle, b"data"), errno.EIO),
        (Fault.SYNC, lambda files, handle: files.sync_folder("f"), errno.EIO),
        (Fault.READ, lambda files, handle: files.read("f/a"), errno.EIO),
        (Fault.TRUNCATE, lambda files, handle: files.create("f/b"), errno.EIO),
        (Fault.DELETE, lambda files, handle: files.rename("f/a", "f/c"), errno.EIO),
        (Fault.DELETE, lambda files, handle: files.remove("f/a"), errno.EIO),
    ],
)
def test_what_fails_says_why(fault: Fault, call: Callable[[SimulatedFiles, int], object], number: int) -> None:
    disk = FolderDisk(1)
    files = disk.start()
    handle = files.create("f/a")
    disk.fail_at(1, fault)
    with pytest.raises(OSError, match=r".") as caught:
        call(files, handle)
    assert caught.value.errno == number
    disk.heal()
    call(files, handle)


def test_a_cut_strikes_at_a_step_and_ends_a_life() -> None:
    steps = 0
    for step in range(1, 20):
        disk = FolderDisk(step)
        files = disk.start()
        disk.cut_at(step)
        try:
            write(files, "f/a.new", b"data", sync=True)
            files.rename("f/a.new", "f/a")
            files.sync_folder("f")
        except OSError:
            steps += 1
            with pytest.raises(OSError, match="Input/output error"):
                files.list("f")
            assert disk.start().list("f") in ([], ["a"], ["a.new"])
    assert steps == 5


def test_a_kill_takes_nothing_from_the_kernel_but_ends_the_life() -> None:
    disk = FolderDisk(1)
    files = disk.start()
    write(files, "f/a", b"data", sync=False)
    disk.kill()
    with pytest.raises(OSError, match="Input/output error"):
        files.read("f/a")
    assert disk.start().read("f/a") == b"data"


def test_a_copy_has_its_own_fate() -> None:
    disk = FolderDisk(1)
    write(disk.start(), "f/a", b"x" * 5_000, sync=False)
    found = set()
    for seed in range(1, 40):
        twin = disk.copy(seed=seed)
        twin.cut()
        found.add(content("f/a")(twin.start()))
    assert len(found) > 3
    assert disk.content("f/a") == b"x" * 5_000


def test_what_is_not_there_is_said() -> None:
    files = FolderDisk(1).start()
    with pytest.raises(FileNotFoundError):
        files.read("f/a")
    assert files.size("f/a") == -1
    assert files.list("f") == []
