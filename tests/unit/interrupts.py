"""Cutting a call short at a chosen place: a coroutine at its n-th suspension, a plain call at its n-th line."""

import asyncio
import inspect
import linecache
import sys
from collections.abc import Callable, Coroutine, Generator
from types import FrameType
from typing import Any

import unibus

SOURCE = unibus.__file__.rpartition("/")[0]


class Cut:
    """Awaits a coroutine, and cancels it at its n-th suspension. `is_cut` says whether it came so far."""

    def __init__(self, call: Coroutine[Any, Any, None], at: int) -> None:
        self.is_cut = False
        self._call = call
        self._at = at

    def __await__(self) -> Generator[Any, Any, None]:
        suspensions = 0
        while True:
            try:
                awaited = self._call.send(None)
            except StopIteration:
                return
            suspensions += 1
            if suspensions == self._at:
                self.is_cut = True
                if awaited is not None:
                    awaited.cancel()
                try:
                    self._call.throw(asyncio.CancelledError())
                except (asyncio.CancelledError, StopIteration):
                    return
                raise AssertionError("a cancelled close() must not go on")
            yield awaited


def _is_place(frame: FrameType, event: str) -> bool:
    """Whether Ctrl-C may be raised here. Not where a `with` is left, and not at a `try`: no signal comes there.

    The interpreter looks for signals after calls and at the beginning of functions and rounds of loops.
    """
    if event == "line":
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        return not line.lstrip().startswith(("with ", "async with ", "try:"))
    return event == "call"


def _traced(action: Callable[[], object], seen: Callable[[], None]) -> None:
    """Call the action, and `seen` before each line of our source in this thread.

    None of the standard library's: conditions and events of `threading` can be interrupted while they hold a lock, and
    nothing could go on after that.
    """
    before = sys.gettrace()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE) or code.co_flags & inspect.CO_GENERATOR:
            return None  # In a generator that is being dropped the error would be lost.
        if _is_place(frame, event):
            seen()
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)


def interrupted(action: Callable[[], object], at: int) -> bool:
    """Call the action, and raise KeyboardInterrupt before its n-th line, as Ctrl-C does. False if it has fewer."""
    left = at

    def seen() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    try:
        _traced(action, seen)
    except KeyboardInterrupt:
        assert left <= 0
    return left <= 0


def lines_of(action: Callable[[], object]) -> int:
    """How many such places there are in a call that nothing interrupts."""
    count = 0

    def seen() -> None:
        nonlocal count
        count += 1

    _traced(action, seen)
    return count
