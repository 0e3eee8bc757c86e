"""Fork safety: a forked child must not touch the store that its parent has open.

A forked child has a copy of the parent's memory but none of its threads, so a lock that another thread held at that
moment is never released. It shares the open files, and with them the owner's lock and SQLite's record of its own locks.
If the child wrote, it would write into the middle of a group of the parent. If it only closed its copy, SQLite could
roll back what the parent has not finished, or delete the parent's write-ahead log. So in a child

    every operation        raises BusForked, through the fields that operations check anyway (closed, failure)
    close, finalizers      do nothing, and the objects that they would free are never freed
    shared locks           are reset, so that the child can open a bus of its own

    fork():   _before ─────────────▶ takes _forking, then every lock in _held_at_fork
              _after_in_parent ────▶ releases them
              _after_in_child ─────▶ resets them, then calls every ForkMark

A running bus pays nothing for this. No thread may be inside SQLite at a fork: SQLite's own mutexes would stay locked in
the child, and the child could not open any file. So `_before` waits until a write in progress is finished.
"""

import _thread
import os
import threading
import weakref
from collections.abc import Callable
from typing import Final, NoReturn

from unibus.core.atomic import LOCK
from unibus.errors import BusForked
from unibus.safe_log import SafeLogger
from unibus.stores.files.held_files import HeldFiles
from unibus.stores.files.reserve import Reserve
from unibus.stores.seam.durability import Durability

log = SafeLogger("unibus")

WAIT_S: Final = 5.0
"""How long a fork waits for a write to finish: a disk that hangs must not block every fork."""


class ForkMark:
    """A registered callback, valid while its owner keeps it. Not compiled: compiled classes have no weak references."""

    def __init__(self, call: Callable[[int], None]) -> None:
        self.call = call
        self.pid = os.getpid()


# By id. Listing a WeakValueDictionary is one atomic step, so a fork needs no lock while other threads add to it.
_marks: "weakref.WeakValueDictionary[int, ForkMark]" = weakref.WeakValueDictionary()
_held_at_fork: "weakref.WeakValueDictionary[int, threading.RLock]" = weakref.WeakValueDictionary()
_forking: Final = threading.RLock()
_now_held: list[threading.RLock] = []  # Taken, or about to be taken, for the fork in progress.
_kept: list[object] = []


def on_fork(call: Callable[[int], None]) -> ForkMark:
    """Call `call` in every forked child, with the id of this process, as long as the caller keeps the result.

    It runs before any other code of the child and must take no lock: the thread that held it does not exist there.
    """
    mark = ForkMark(call)
    # Weak: the mark ends with its owner, so a store that was freed is not called in later children.
    _marks[id(mark)] = mark
    return mark


def hold_at_fork(lock: threading.RLock) -> None:
    """Let a fork wait until no other thread holds this lock. For locks that are held during calls into SQLite."""
    _held_at_fork[id(lock)] = lock


OPENING: Final = threading.RLock()
"""Held while SQLite opens or closes a file: it takes mutexes of the whole process for that."""
hold_at_fork(OPENING)


def renew(lock: object) -> None:
    """Reset a lock that a thread of the parent may have held. The module `logging` does the same with its locks."""
    renew_it = getattr(lock, "_at_fork_reinit", None)
    if renew_it is not None:
        renew_it()


def renew_in_child(lock: object) -> None:
    """Reset this lock in every child from now on. For a lock of the whole process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: renew(lock))


def keep_for_ever(thing: object) -> None:
    """Never free this object, not even when the interpreter ends. Only for a child: the parent frees it.

    A freed connection would make SQLite close the shared files; a freed loop would remove sockets from the epoll set
    that it shares with the parent.
    """
    _kept.append(thing)
    try:
        import ctypes
    except ImportError:
        return  # Then `_kept` holds it until the interpreter ends.
    # One reference that is never released: at exit the interpreter clears module globals, `_kept` among them, and would
    # free the object after all.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def opened_by(pid: int) -> BusForked:
    return BusForked(f"this bus was opened by process {pid}, and this is a child of it", "open a bus in the child")


class ForkedJournal:
    """Replaces the journal of a store in a child: every call raises BusForked, and `close` does nothing."""

    def __init__(self, url: str, durability: Durability, pid: int) -> None:
        self.url = url
        self.durability = durability
        self.snapshots = False
        self.identity = ""
        self.held = HeldFiles()
        self.reserve = Reserve("", 0)
        self.domain = ""
        self.is_quick = False
        self.oldest = self.last = self.size_bytes = 0
        self._pid = pid

    def _refuse(self, *arguments: object, **keywords: object) -> NoReturn:
        raise opened_by(self._pid)

    load_snapshot = append = look_up = changes_after = changes_at = find = read_bodies = cursors = trim = _refuse

    def close(self) -> None:
        """The parent closes it."""


def _before() -> None:
    """Python prints an exception of this function and forks anyway. So a Ctrl-C here must not leave a lock
    taken for ever: each lock is listed in `_now_held` before it is taken, and `_after_in_parent` asks the lock itself
    whether it is held.
    """
    _forking.acquire()
    while True:
        known = [lock for reference in _held_at_fork.valuerefs() if (lock := reference()) is not None]
        new = [lock for lock in known if not any(lock is held for held in _now_held)]
        if not new:
            return  # A lock that is added later does not matter: SQLite opens files under OPENING, which is taken.
        for lock in sorted(new, key=id):
            # Listed before it is taken. A Ctrl-C between the two lines leaves a listed lock that is not held, which
            # `is_owned` detects; the other order would leave a held lock that no code releases.
            _now_held.append(lock)
            if not lock.acquire(timeout=WAIT_S):
                log.warning("a process was forked during a write; do not open a store in the child")


def _after_in_parent() -> None:
    is_interrupted = False
    while _now_held or is_owned(_forking):
        try:
            while _now_held:
                if is_owned(_now_held[-1]):  # False if waiting for it timed out.
                    _now_held[-1].release()
                _now_held.pop()
            _forking.release()
        except KeyboardInterrupt:
            is_interrupted = True  # Release the rest first, or every later write would wait for ever.
    if is_interrupted:
        _thread.interrupt_main()


def is_owned(lock: threading.RLock) -> bool:
    """Whether this thread holds the lock, by the same method that `threading.Condition` uses."""
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]
    return owned


def _after_in_child() -> None:
    # Only this thread exists here, and no other code has run yet. The locks are reset and not released: some were held
    # by threads that the child does not have.
    _now_held.clear()
    for lock in (_forking, LOCK, *_held_at_fork.values()):
        renew(lock)
    for mark in list(_marks.values()):
        try:
            mark.call(mark.pid)
        except Exception:
            log.exception("a bus of the parent could not be disabled in a forked child")  # Still disable the others.


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
