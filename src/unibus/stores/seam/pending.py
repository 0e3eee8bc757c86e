# mypyc: compiled
"""An answer that is on its way: awaited on an event loop, or waited for by a thread.

A store answers only when what it did is as durable as was asked for. One Pending is made for each call. Those whose
changes are written together share one Outcome: the thread that commits decides it once, and each loop is woken once,
not once per answer.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, Generic, Protocol, TypeVar, cast

from unibus.stores.seam.forked import renew_in_child
from unibus.stores.seam.ready import awaited, ready
from unibus.stores.seam.waiter import Waiter

log = logging.getLogger("unibus")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")

_RARE: Final = threading.Lock()  # For what two threads could do to one outcome at the same time.
renew_in_child(_RARE)


class Committing(Protocol):
    """Whoever makes things durable."""

    def lead(self, outcome: "CommitResult") -> None:
        """Commit in this thread until that is decided."""

    def kick(self) -> None:
        """Let another thread commit now."""


class CommitResult:
    """How it went with everything that was written together; `failure` makes the error, one for each who waits.

    `commits` is who will decide it, and can be hurried; None where somebody else sees to that.
    """

    def __init__(self, commits: Committing | None) -> None:
        self.done = False
        self.failure: Callable[[], BaseException] | None = None
        self.commits = commits
        # Tasks that wait, nearly always all on one loop; its list is for the thread of the loop alone.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: list[Waiter] = []
        self._elsewhere: list[Waiter] = []
        self._calls: list[tuple[Callable[[Pending[object]], None], Pending[object]]] = []
        self._arrived: threading.Event | None = None

    def decide(self, failure: Callable[[], BaseException] | None = None) -> None:
        """It is written, or it failed: that is how it is from now on, for everybody."""
        self.settle(failure)
        self.tell(None)

    def settle(self, failure: Callable[[], BaseException] | None) -> None:
        """The first half of `decide`: it is true, and nobody has been told."""
        with _RARE:
            self.failure = failure
            self.done = True

    def tell(self, here: asyncio.AbstractEventLoop | None) -> None:
        """The second half, with no lock held: what is called may do anything.

        `here` is the loop that the caller is, if it is no task of it: its tasks go on in this very call.
        """
        if self._arrived is not None:
            self._arrived.set()
        for call, pending in self._calls:
            try:
                call(pending)
            except Exception:
                log.exception("whoever wanted to be called about a write has raised")  # The others must hear of it.
        if self._loop is not None and self._loop is here:
            self._go_on()
        elif self._loop is not None:
            _soon(self._loop, self._go_on)
        if self._elsewhere:
            for loop in {waiter.get_loop() for waiter in self._elsewhere}:
                _soon(loop, partial(self._go_on_elsewhere, loop))

    def _go_on(self) -> None:
        """On the loop."""
        waiters, self._waiters = self._waiters, []
        begun = 0
        try:
            for waiter in waiters:
                begun += 1
                waiter.go_on()
        except BaseException:
            # A task lets only the end of the program through. The others must hear of it too.
            self._waiters = waiters[begun:]
            asyncio.get_running_loop().call_soon(self._go_on)
            raise

    def _go_on_elsewhere(self, loop: asyncio.AbstractEventLoop) -> None:
        """On a loop that is not the first: all that wait there, by one wake-up."""
        for waiter in list(self._elsewhere):
            if waiter.get_loop() is loop:
                waiter.go_on()

    def add(self, loop: asyncio.AbstractEventLoop) -> Waiter:
        """On the loop: something to wait for."""
        waiter = Waiter(loop)
        if self._loop is None:
            with _RARE:
                self._loop = self._loop or loop
        if self._loop is loop:
            self._waiters.append(waiter)
            if self.done:  # Meanwhile; whoever decided it may not have seen this loop.
                _soon(loop, self._go_on)
        else:
            with _RARE:
                self._elsewhere.append(waiter)
            if self.done:
                _soon(loop, waiter.go_on)
        return waiter

    def call(self, call: "Callable[[Pending[object]], None]", pending: "Pending[object]") -> None:
        with _RARE:
            late = self.done
            if not late:
                self._calls.append((call, pending))
        if late:
            call(pending)
        elif self.commits is not None:
            self.commits.kick()

    def wait(self, timeout_s: float | None) -> None:
        if self.commits is not None:
            self.commits.lead(self)
        if not self.done:
            with _RARE:
                arrived = self._arrived or threading.Event()
                self._arrived = arrived
            if not self.done and not arrived.wait(timeout_s):
                raise TimeoutError(f"no answer within {timeout_s} s")


class Pending(Generic[T_co]):
    """`value` is the answer, which counts as soon as its outcome is known; no outcome: it counts already.

    `loop` is the one that is running where it was made, if any: then whoever awaits it does so there.
    """

    def __init__(self, value: T_co, outcome: CommitResult | None = None) -> None:
        self.value = value
        self.outcome = outcome
        self.loop: asyncio.AbstractEventLoop | None = None
        self._view: Callable[[object], object] | None = None

    @property
    def done(self) -> bool:
        return self.outcome is None or self.outcome.done

    @property
    def error(self) -> BaseException | None:
        """A new one each time: raising one object in many tasks would mix their tracebacks."""
        outcome = self.outcome
        return None if outcome is None or outcome.failure is None else outcome.failure()

    def map(self, view: "Callable[[T_co], U]") -> "Pending[U]":
        """The same answer, shown through a function to whoever waits for it."""
        self._view = cast("Callable[[object], object]", view)
        return cast("Pending[U]", self)

    def on_done(self, call: "Callable[[Pending[T_co]], None]") -> None:
        """Call this when the answer is there, at once if it is: in the thread that decided it. It must be quick."""
        if self.outcome is None:
            call(self)
        else:
            self.outcome.call(cast("Callable[[Pending[object]], None]", call), cast("Pending[object]", self))

    def then(self, loop: asyncio.AbstractEventLoop, call: "Callable[[Pending[T_co]], None]") -> None:
        """Call this on the loop when the answer is there, in a later turn: `call` reads it by `result()`.

        To be called on that loop. Everything that was written together wakes it once. For those who serve many requests
        and would make a task for each only to wait.
        """
        outcome = self.outcome
        if outcome is None or outcome.done:
            loop.call_soon(call, self)
            return
        outcome.add(loop).add_done_callback(partial(_called, call, self))
        if self.loop is None and outcome.commits is not None:
            outcome.commits.kick()  # It was asked for where no loop was running: nothing else would commit it.

    def __await__(self) -> Generator[object, None, T_co]:
        outcome = self.outcome
        if outcome is None or outcome.done:
            return ready(self.result)
        loop = self.loop
        return awaited(outcome.add(asyncio.get_running_loop() if loop is None else loop), self)

    def wait(self, timeout_s: float | None = None) -> T_co:
        """Block this thread until the answer is there. TimeoutError leaves it on its way."""
        outcome = self.outcome
        if outcome is not None and not outcome.done:
            outcome.wait(timeout_s)
        return self.result()

    def result(self) -> T_co:
        """What there is to see, or the error."""
        error = self.error
        if error is not None:
            raise error
        return self.value if self._view is None else cast("T_co", self._view(self.value))


def _called(call: "Callable[[Pending[T]], None]", pending: "Pending[T]", waiter: Waiter) -> None:
    try:
        call(pending)
    except Exception:
        log.exception("a callback that was given to Pending.then has raised")  # The others must hear of it.


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        # The loop was closed, and everybody who waited on it is gone.
        return


def resolved(value: T) -> Pending[T]:
    """An answer that needs no waiting."""
    return Pending(value)
