"""Why methods of the hot rooms need no lock when compiled, and how they get one when they run plain.

A compiled method runs from start to end without giving up the interpreter, as long as it calls nothing
that is written in Python: the hand-over between threads happens in the bytecode loop, and compiled code
has none. So "look, then change" is one step, and the queues need no lock on their fast path.

The same source run plain is interrupted anywhere. There, and only there, `atomic` wraps the named methods
in one lock for the whole package: what the interpreter's own lock does for the compiled code. One lock
cannot deadlock with itself, and plain mode is for development, not for speed.

Two rules that both modes rest on. An atomic method never calls a handler, a filter or anything else of the user's.
And before Python 3.12 an allocation may start the cycle collector, which may run anybody's finalizer: so an atomic
method allocates first, looks after that, and then changes; where that is not possible it takes `LOCK` in both modes.
"""

import functools
import gc
from _thread import RLock
from collections.abc import Callable
from typing import Final

COMPILED: Final = not __file__.endswith((".py", ".pyc"))  # Bytecode without sources is plain Python, too.

LOCK: Final = RLock()


def atomic(cls: type[object], *names: str) -> None:
    """Make each named method of `cls` one step as seen by other threads. Does nothing when compiled."""
    if COMPILED:
        return
    for name in names:
        setattr(cls, name, _locked(getattr(cls, name)))


def _locked(method: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(method)
    def call(*args: object, **keywords: object) -> object:
        with LOCK:
            collecting = gc.isenabled()
            gc.disable()  # A finalizer of this very thread would pass the lock.
            try:
                return method(*args, **keywords)
            finally:
                if collecting:
                    gc.enable()

    return call
