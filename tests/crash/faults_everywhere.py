"""An exception at the N-th call, or at the N-th line, of one operation on a store: for every N that the operation has.

An exception may come at any call: out of memory, Ctrl-C, a defect. What must hold after it, whichever call it was:

    the store continues  its invariants hold, memory and log agree, the operation took place as a whole or not at all
    or it has stopped    every later call says so; opened again it holds what was before, or all of the operation

Plain Python is traced. Compiled code cannot be: a package that `tools/fault_points.py` has prepared calls a hook at the
beginning of every function.
"""

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from unibus.core import COMPILED
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import BusError
from unibus.stores.engine.embedded import EmbeddedStore

ANSWER_S = 20
_FIRST_INSTRUCTIONS = 8
PACKAGES = ("/unibus/core/", "/unibus/stores/")


@dataclass
class Faults:
    """Raises `error` at point `at` of this thread; counts points while `at` is 0."""

    at: int = 0
    error: type[BaseException] = MemoryError
    lines: bool = False
    seen: int = 0
    where: str = ""
    _known: dict[str, bool] = field(default_factory=dict)

    @contextmanager
    def active(self) -> Iterator[None]:
        if COMPILED:
            with self._hooked():
                yield
            return
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        points = importlib.import_module("unibus.fault_points")
        thread = threading.get_ident()

        def hook(where: str) -> None:
            if threading.get_ident() == thread:
                self._reach(where)

        points.hook = hook  # type: ignore[attr-defined]
        try:
            yield
        finally:
            points.hook = None  # type: ignore[attr-defined]

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not self._is_ours(frame.f_code.co_filename):
            return None
        # A generator that is resumed is a call for the tracer, too, but an exception there would skip its `finally`.
        begins = event == "call" and frame.f_lasti < _FIRST_INSTRUCTIONS
        if begins or (self.lines and event == "line"):
            self._reach(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
        return self._trace if self.lines else None

    def _is_ours(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = any(package in name for package in PACKAGES)
        return known

    def _reach(self, where: str) -> None:
        self.seen += 1
        if self.seen == self.at:
            self.where = where
            raise self.error(f"at point {self.at}: {self.where}")


def picture(store: EmbeddedStore) -> object:
    """Everything in the store, except for lock tokens, which are random."""
    return picture_of(store._state)


def picture_of(state: StoreState) -> object:
    return (
        dict(state.retired),
        dict(state.positions),
        {
            entity.name: (
                entity.kind,
                entity.sequence,
                entity.settings.given,
                [(sequence, _masked(entry.as_saved())) for sequence, entry in entity.entries.items()],
                [_masked(session.as_saved()) for session in entity.sessions.values()],
                {} if entity.marks is None else dict(entity.marks.items()),
                {} if entity.processed is None else dict(entity.processed.items()),
            )
            for entity in state.entities.values()
        },
    )


def _masked(saved: Any) -> object:
    saved.token = None if saved.token is None else b"token"
    return repr(saved)


@dataclass
class Trial:
    """One operation on a store that `prepare` opens, the same each time; `reopen` opens its files again."""

    prepare: Callable[[], EmbeddedStore]
    operation: Callable[[EmbeddedStore], object]
    reopen: Callable[[], EmbeddedStore] | None
    is_atomic: bool = True

    def points(self, lines: bool) -> tuple[int, object, object]:
        """How many points the operation has, and what the store holds before and after it."""
        store = self.prepare()
        before = picture(store)
        faults = Faults(lines=lines)
        with faults.active():
            self.operation(store)
        after = picture(store)
        store.close()
        return faults.seen, before, after

    def run(self, at: int, error: type[BaseException], lines: bool, before: object, after: object) -> str:
        """What is wrong after an exception at that point, in words; empty if nothing is."""
        store = self.prepare()
        faults = Faults(at, error, lines)
        raised: BaseException | None = None
        try:
            with faults.active():
                self.operation(store)
        except BaseException as problem:
            raised = problem
        allowed = [after] if raised is None else [before, after]
        return f"{error.__name__} at {faults.where}: {found}" if (found := self._judge(store, allowed)) else ""

    def _judge(self, store: EmbeddedStore, allowed: list[object]) -> str:
        if store.health().ok:
            problems = _in_time(store.check)
            if problems:
                return f"it continues, and {problems}"
            if self.is_atomic and picture(store) not in allowed:
                return "it continues with half of the operation"
        else:
            stopped = _in_time(lambda: store.entities())
            if not isinstance(stopped, BusError):
                return f"it has stopped, and a call gives {stopped!r}"
        closed = _in_time(store.close)
        if closed is not None and not isinstance(closed, BusError):
            return f"close() gives {closed!r}"
        return "" if self.reopen is None else self._judge_reopened(self.reopen, allowed)

    def _judge_reopened(self, reopen: Callable[[], EmbeddedStore], allowed: list[object]) -> str:
        opened = _in_time(reopen)
        if not isinstance(opened, EmbeddedStore):
            return f"it cannot be opened again: {opened!r}"
        problems = _in_time(opened.check)
        held = picture(opened)
        opened.close()
        if problems:
            return f"opened again: {problems}"
        return "" if not self.is_atomic or held in allowed else "opened again it holds half of the operation"


def _in_time(call: Callable[[], object]) -> object:
    """What the call gives or raises; TimeoutError if it hangs. In a thread of its own, so that a hang can be seen."""
    answer: list[object] = []

    def run() -> None:
        try:
            answer.append(call())
        except BaseException as error:
            answer.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(ANSWER_S)
    return answer[0] if answer else TimeoutError("it hangs")
