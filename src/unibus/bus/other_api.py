"""Errors for code that mixes up the async and the sync API: `with MessageBus()`, `async with` on a received message of
`unibus.sync`, a `for` loop over a result that was not awaited.

Python's own error names a protocol that is missing, and not what to write instead. So each class gets the methods of
the other API, which raise a UsageError with the answer. They are added at run time and not written in the class:
type checkers still report the mistake, and the reference of the API does not list methods that only raise.

Not compiled: a compiled function is no descriptor, so it would not get the object as its first argument.
"""

from collections.abc import Callable
from typing import Final, NoReturn

from unibus.errors import UsageError

SYNC_BLOCK: Final = ("__enter__", "__exit__")
ASYNC_BLOCK: Final = ("__aenter__", "__aexit__")
AWAITED: Final = ("__await__",)
NOT_AWAITED: Final = ("__iter__", "__getitem__")
"""Not `__len__`: it would also decide whether the result is true."""


def refuse(owner: type, methods: tuple[str, ...], what: str, hint: str) -> None:
    """Make these methods of the class raise UsageError."""
    for name in methods:
        setattr(owner, name, _raising(what, hint))


def _raising(what: str, hint: str) -> Callable[..., NoReturn]:
    def raises(self: object, *arguments: object) -> NoReturn:
        raise UsageError(what, hint)

    return raises
