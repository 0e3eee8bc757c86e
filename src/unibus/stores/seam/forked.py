"""A store in a child of the process that opened it: it belongs to the parent, and the child must leave it alone.

A forked child has copies of everything in memory, but none of the threads; locks that were held at that moment stay
held for ever. It shares the open files, and with them the owner's lock and SQLite's memory of its own locks. A child
that wrote would write into the middle of what the parent writes; one that only closed its copy could take back what the
parent has not finished, or remove the parent's log. So in a child

    every operation        raises BusForked: what operations look at anyway (closed, failed) was changed here
    close, finalizers      do nothing, and what they would free is kept for ever
    locks that are shared  are free again, so that the child can make a bus of its own

None of that costs a running bus anything. Before a fork, no thread may be inside of SQLite: its own mutexes would be
held in the child for ever, and no second file could be opened there. So a fork waits for a write that is going on.
"""

import _thread
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Final, NoReturn

from unibus.core.atomic import LOCK
from unibus.errors import BusForked
from unibus.stores.files.held_files import HeldFiles
from unibus.stores.files.reserve import Reserve
from unibus.stores.seam.durability import Durability

log = logging.getLogger("unibus")

WAIT_S: Final = 5.0
"""How long a fork waits for a write: a disk that hangs must not hang every fork."""


class ForkMark:
    """Kept by what has to know of a fork. A plain class, because compiled ones have no weak references."""

    def __init__(self, call: Callable[[int], None]) -> None:
        self.call = call
        self.pid = os.getpid()


# By their ids. Of a WeakValueDictionary a thread can list what there is in one step, while others add to it.
_marks: "weakref.WeakValueDictionary[int, ForkMark]" = weakref.WeakValueDictionary()
_held_at_fork: "weakref.WeakValueDictionary[int, threading.RLock]" = weakref.WeakValueDictionary()
_forking: Final = threading.RLock()
_now_held: list[threading.RLock] = []
_kept: list[object] = []


def on_fork(call: Callable[[int], None]) -> ForkMark:
    """Call this in every child, with the id of this process, as long as the caller keeps the result.

    It is called in the first moment of the child, and must take no lock: a thread that had it does not exist there.
    """
    mark = ForkMark(call)
    _marks[id(mark)] = mark
    return mark


def hold_at_fork(lock: threading.RLock) -> None:
    """Fork only while no other thread holds this lock. For what is held inside of SQLite."""
    _held_at_fork[id(lock)] = lock


OPENING: Final = threading.RLock()
"""Held while a file is opened or closed by SQLite, which takes mutexes of the whole process for that."""
hold_at_fork(OPENING)


def renew(lock: object) -> None:
    """Free a lock that a thread of the parent may have held. The same thing is done for the locks of `logging`."""
    renew_it = getattr(lock, "_at_fork_reinit", None)
    if renew_it is not None:
        renew_it()


def renew_in_child(lock: object) -> None:
    """The same in every child from now on, for a lock of the whole process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: renew(lock))


def keep_for_ever(thing: object) -> None:
    """Let nothing free it, not even the end of the interpreter. Only for a child: it is the parent's to free.

    SQLite would close its files, and a loop would take its sockets out of what the parent waits for.
    """
    _kept.append(thing)
    try:
        import ctypes
    except ImportError:
        return  # Then it lives as long as this module does.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def opened_by(pid: int) -> BusForked:
    return BusForked(f"this bus was opened by process {pid}, and this is a child of it", "make a bus in the child")


class ForkedJournal:
    """What a store has instead of its journal in a child: nothing is written or read, and closing is no matter."""

    def __init__(self, url: str, durability: Durability, pid: int) -> None:
        self.url = url
        self.durability = durability
        self.snapshots = False
        self.held = HeldFiles()
        self.reserve = Reserve("", 0)
        self._pid = pid

    def _refuse(self, *arguments: object, **keywords: object) -> NoReturn:
        raise opened_by(self._pid)

    load = reload = append = is_quick = bodies = events_after = events_of = changes_after = changes_at = _refuse
    cursors = move_cursor = missed = trim = size_bytes = oldest_seq = _refuse

    def close(self) -> None:
        """It is the parent's."""


def _before() -> None:
    """An exception here is printed and forgotten, and the fork goes on: a Ctrl-C must not lose what has to be released.
    So what may be held is listed before it is taken, and whether it is held is asked of the lock itself."""
    _forking.acquire()
    while True:
        known = [lock for reference in _held_at_fork.valuerefs() if (lock := reference()) is not None]
        new = [lock for lock in known if not any(lock is held for held in _now_held)]
        if not new:
            return  # Nor can one be added any more: files are opened under one of these locks.
        for lock in sorted(new, key=id):
            _now_held.append(lock)
            if not lock.acquire(timeout=WAIT_S):
                log.warning("a process was forked in the middle of a write; the child should open no store")


def _after_in_parent() -> None:
    is_interrupted = False
    while _now_held or is_owned(_forking):
        try:
            while _now_held:
                if is_owned(_now_held[-1]):  # Not so where waiting for it took too long.
                    _now_held[-1].release()
                _now_held.pop()
            _forking.release()
        except KeyboardInterrupt:
            is_interrupted = True  # The rest has to be released first.
    if is_interrupted:
        _thread.interrupt_main()


def is_owned(lock: threading.RLock) -> bool:
    """Whether this thread holds it, as `threading.Condition` asks it."""
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]
    return owned


def _after_in_child() -> None:
    _now_held.clear()
    for lock in (_forking, LOCK, *_held_at_fork.values()):
        renew(lock)
    for mark in list(_marks.values()):
        try:
            mark.call(mark.pid)
        except Exception:
            log.exception("a bus of the parent could not be marked as such")  # The others have to be.


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
