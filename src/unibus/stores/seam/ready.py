"""The generators that `await pending` runs: for a result that is decided already, and for one that is not.

Not compiled on purpose: the interpreter returns the value of its own generators without an exception. Compiled code
raises and catches StopIteration, which costs several times as much. So these two are not in pending.py.
"""

from collections.abc import Callable, Generator
from typing import Any


def ready(result: Callable[[], Any]) -> Generator[Any, None, Any]:
    yield from ()  # Makes this function a generator.
    return result()


def awaited(waiter: object, pending: Any) -> Generator[Any, None, Any]:
    yield waiter
    return pending.result()
