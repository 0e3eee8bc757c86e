"""An answer that is on its way: awaited on an event loop, or waited for by a thread.

A store answers only when what it did is as durable as was asked for. One Pending is made for each call, and the thread
that commits finishes many of them at once: each loop is woken once, not once per answer.
"""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")

_RARE: Final = threading.Lock()  # For several who wait for one answer.


class Commits(Protocol):
    """Whoever makes things durable."""

    def lead(self, pending: "Pending[Any]") -> None:
        """Commit in this thread until the answer is there."""

    def kick(self) -> None:
        """Let another thread commit now."""


class Pending(Generic[T]):
    """`commits` is who will finish it, and can be hurried; None where somebody else sees to that."""

    __slots__ = ("_arrived", "_call", "_future", "_futures", "_view", "commits", "done", "error", "value")

    def __init__(self, value: T) -> None:
        self.value = value
        self.error: BaseException | None = None
        self.done = False
        self.commits: Commits | None = None
        self._view: Callable[[Any], Any] | None = None
        self._call: Callable[[Pending[Any]], None] | None = None
        self._future: asyncio.Future[None] | None = None
        self._futures: Sequence[asyncio.Future[None]] = ()  # Of those who wait beside the first.
        self._arrived: threading.Event | None = None

    def seen_as(self, view: "Callable[[T], U]") -> "Pending[U]":
        """The same answer, shown through a function to whoever waits for it."""
        self._view = view
        return cast("Pending[U]", self)

    def on_done(self, call: "Callable[[Pending[Any]], None]") -> None:
        """Call this when the answer is there, at once if it is: in the thread that finished it. It must be quick."""
        self._call = call
        if self.done:
            self._called()
        elif self.commits is not None:
            self.commits.kick()

    def _called(self) -> None:
        # Both who finishes and who asks to be called may come here; the first one calls.
        call, self._call = self._call, None
        if call is not None:
            call(self)

    def __await__(self) -> Generator[object, None, T]:
        if not self.done:
            # In this order: whoever finishes sets `done` first and looks for the future after that.
            future = asyncio.get_running_loop().create_future()
            if self._future is None:
                self._future = future
            else:
                with _RARE:
                    self._futures = [*self._futures, future]
            if not self.done:
                yield from future
        if self.error is not None:
            raise self.error
        return self.value if self._view is None else cast("T", self._view(self.value))

    def wait(self, timeout_s: float | None = None) -> T:
        """Block this thread until the answer is there. TimeoutError leaves it on its way."""
        if not self.done and self.commits is not None:
            self.commits.lead(self)
        if not self.done:
            with _RARE:
                arrived = self._arrived = self._arrived or threading.Event()
            if not self.done and not arrived.wait(timeout_s):
                raise TimeoutError(f"no answer within {timeout_s} s")
        if self.error is not None:
            raise self.error
        return self.value if self._view is None else cast("T", self._view(self.value))

    def finish(self, error: BaseException | None = None) -> "asyncio.Future[None] | None":
        """The answer is there. Wakes waiting threads; the first future that waits is given to the caller to settle."""
        self.error = error
        self.done = True
        if self._arrived is not None:
            self._arrived.set()
        if self._call is not None:
            self._called()
        for future in self._futures:
            _settle_soon(future.get_loop(), [future])
        return self._future


def finish_all(pendings: "Iterable[Pending[object]]", failure: "Callable[[], BaseException] | None" = None) -> None:
    """Finish many, with one wake-up for each loop that waits. Each gets a failure of its own, if there is one."""
    waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for pending in pendings:
        future = pending.finish(None if failure is None else failure())
        if future is not None:
            waiting.setdefault(future.get_loop(), []).append(future)
    for loop, futures in waiting.items():
        _settle_soon(loop, futures)


def _settle_soon(loop: asyncio.AbstractEventLoop, futures: "list[asyncio.Future[None]]") -> None:
    try:
        loop.call_soon_threadsafe(_settle, futures)
    except RuntimeError:
        # The loop was closed, and everybody who waited on it is gone.
        return


def _settle(futures: "list[asyncio.Future[None]]") -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def answered(value: T) -> Pending[T]:
    """An answer that needs no waiting."""
    pending = Pending(value)
    pending.done = True
    return pending
