"""What `await` runs: an answer that is there already, or one that is on its way.

Left uncompiled on purpose: the interpreter hands the value of its own generators over without an exception, compiled
code has to raise and catch StopIteration, which costs several times as much.
"""

from collections.abc import Callable, Generator
from typing import Any


def ready(result: Callable[[], Any]) -> Generator[Any, None, Any]:
    yield from ()  # It makes this a generator.
    return result()


def awaited(waiter: object, pending: Any) -> Generator[Any, None, Any]:
    yield waiter
    return pending.result()
