"""Atomic methods: why the methods of the hot path need no lock when compiled, and how they get one when not compiled.

Compiled. A compiled method runs from start to end without releasing the GIL, as long as it calls nothing that is
written in Python: the interpreter switches threads in the bytecode loop, and compiled code has none. So "check, then
change" is one atomic step, and the queues need no lock on their fast path. This needs a GIL; `unibus/__init__.py`
refuses an interpreter without one (decision 0003).

Plain. The same source run as Python can be interrupted between any two bytecodes. There, and only there, `atomic` wraps
the named methods in one re-entrant lock for the whole package. One lock cannot deadlock with itself; plain mode is for
development, not for speed.

Two rules hold in both modes:

1. An atomic method calls no handler, no filter and no other code of the user.
2. Before Python 3.12 an allocation may start the cycle collector, which may run any finalizer. So an atomic method
   allocates first, then checks, then changes. Where this order is not possible, it takes `LOCK` in both modes.
"""

import functools
import gc
from _thread import RLock
from collections.abc import Callable
from typing import Final

COMPILED: Final = not __file__.endswith((".py", ".pyc"))  # Bytecode without sources is not compiled either.

LOCK: Final = RLock()


def atomic(cls: type[object], *names: str) -> None:
    """Make each named method of `cls` atomic for other threads. Does nothing when compiled: see the module."""
    if COMPILED:
        return
    for name in names:
        setattr(cls, name, _locked(getattr(cls, name)))


def _locked(method: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(method)
    def call(*args: object, **keywords: object) -> object:
        with LOCK:
            collecting = gc.isenabled()
            # A finalizer would run in this thread, and the re-entrant lock would not keep it out.
            gc.disable()
            try:
                return method(*args, **keywords)
            finally:
                if collecting:
                    gc.enable()

    return call
