"""`python -m tests.unit.bus.forks FOLDER`: small cases of a fork, all in one process, which names those that failed."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unibus.bus.timers import ThreadTimers
from unibus.capture import child as capture_child
from unibus.clock import SYSTEM_CLOCK
from unibus.errors import BusForked, StoreBusy
from unibus.stores.opening import open_store
from unibus.stores.schemes import open_reader
from unibus.stores.seam import forked
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.sync import MessageBus


def in_child(check: Callable[[], bool]) -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(0 if check() else 1)
    return os.waitpid(pid, 0)[1] == 0


def raises(kind: type[BaseException], call: Callable[[], object]) -> bool:
    try:
        call()
    except kind:
        return True
    return False


def open_files() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.path.basename(os.readlink(f"/proc/self/fd/{name}")))
        except FileNotFoundError:
            continue  # The one that lists them.
    return found


class Lock:
    """Tells what is done to it."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def acquire(self, timeout: float) -> bool:
        self.told.append("acquired")
        return True

    def release(self) -> None:
        self.told.append("released")

    def _is_owned(self) -> bool:
        return self.told[-1:] == ["acquired"]


def a_fork_waits_until_no_thread_is_inside_of_sqlite(path: str) -> bool:
    journal = SqliteJournal(path)
    lock: Any = Lock()
    forked.hold_at_fork(lock)
    registered = journal._mutex in list(forked._held_at_fork.values())
    held = in_child(lambda: lock.told == ["acquired"])
    free = journal._mutex.acquire(blocking=False)
    journal._mutex.release()
    journal.close()
    return registered and held and free and lock.told == ["acquired", "released"]


def threads_of_the_child_take_turns_as_before(path: str) -> bool:
    before = sys.getswitchinterval()

    def check() -> bool:
        here = sys.getswitchinterval()
        with MessageBus(f"{path}.other"):
            quick = sys.getswitchinterval()
        return here == before and quick < before and sys.getswitchinterval() == before

    with MessageBus(path):
        return in_child(check)


def a_reader_is_the_parents_too(path: str) -> bool:
    reader = open_reader(f"sqlite:///{path}")
    reader.entities()
    before = open_files()

    def check() -> bool:
        refused = raises(BusForked, reader.entities) and raises(BusForked, lambda: reader.list_messages("q"))
        reader.close()
        return refused and open_files() == before

    refused = in_child(check)
    still = reader.entities() == []
    reader.close()
    return refused and still and "bus.db" in before


def what_the_parent_has_open_cannot_be_read_in_the_child(path: str) -> bool:
    with MessageBus(path):
        return in_child(lambda: raises(StoreBusy, lambda: open_reader(f"sqlite:///{path}")))


def sqlite_closes_none_of_its_files_in_the_child(path: str) -> bool:
    """That could end what the parent is doing. Of the lock the child has no copy."""
    store = open_store(f"sqlite:///{path}", SYSTEM_CLOCK, ThreadTimers(SYSTEM_CLOCK, print))
    before = open_files()

    def check() -> bool:
        store.close()
        gc.collect()  # What is freed only now is freed too.
        return before - open_files() == {"bus.db.lock"}

    kept = in_child(check)
    store.close()
    return kept and {"bus.db", "bus.db-wal", "bus.db-shm", "bus.db.lock"} <= before


def the_capture_of_the_parent_does_not_wait_for_the_child(path: str) -> bool:
    """It ends with its input, which must not stay open in the child."""
    start = subprocess.Popen

    def start_cat(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        return start(["cat"], **options)

    capture_child.subprocess.Popen = start_cat  # type: ignore[assignment, misc]
    try:
        bus = MessageBus(f"sqlite:///{path}?capture={path}.captured")
    finally:
        capture_child.subprocess.Popen = start  # type: ignore[misc]
    pipe = bus._runtime.shutdown.capture._process.stdin.fileno()  # type: ignore[union-attr]
    let_go = in_child(lambda: raises(OSError, lambda: os.fstat(pipe)))
    os.fstat(pipe)
    bus.close()
    return let_go


CASES: list[Callable[[str], bool]] = [
    a_fork_waits_until_no_thread_is_inside_of_sqlite,
    threads_of_the_child_take_turns_as_before,
    a_reader_is_the_parents_too,
    what_the_parent_has_open_cannot_be_read_in_the_child,
    sqlite_closes_none_of_its_files_in_the_child,
    the_capture_of_the_parent_does_not_wait_for_the_child,
]


class Freed:
    def __del__(self) -> None:
        os.write(1, b"what was kept for ever was freed\n")


def main(folder: str) -> None:
    path = str(Path(folder) / "bus.db")
    MessageBus(path).close()
    forked.keep_for_ever({"parts": [Freed()]})  # Not even at the end of this process.
    for case in CASES:
        if not case(path):
            sys.stdout.write(f"{case.__name__} is not so\n")


if __name__ == "__main__":
    main(sys.argv[1])
