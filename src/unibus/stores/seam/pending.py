# mypyc: compiled
"""The result of a store call that is not durable yet: a task awaits it, or a thread waits for it.

    call ──▶ Pending ─┐
    call ──▶ Pending ─┼──▶ CommitResult ◀── decided once, by the thread that writes the group
    call ──▶ Pending ─┘         └──▶ wakes each event loop once, each waiting thread, and runs the callbacks

A store returns a result only when the change is as durable as the call asked for. Each call has its own Pending; all
calls whose changes are written as one group share one CommitResult. So a group with hundreds of calls costs one wake-up
for a loop and not hundreds.

Two kinds of store use it. An embedded one decides in the call itself: it raises a refusal at once, and the value is
known while the write is still open. One that asks a server returns an `undecided()` Pending, and calls `resolve` or
`reject` when the answer arrives. Code that needs the value before it is durable uses `on_decided`, code that handles a
refusal uses `recover`: both are right for either kind.

Nothing is lost between "not decided" and "decided": `settle` sets `done` first and `notify` reads the lists of waiters
afterwards, while a waiter adds itself to a list first and reads `done` afterwards. One of the two sees the other.
"""

import contextvars
import copy
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast, final

from unibus.errors import BusError
from unibus.safe_log import SafeLogger
from unibus.stores.seam.forked import renew_in_child
from unibus.stores.seam.ready import awaited, ready

if TYPE_CHECKING:
    import asyncio

log = SafeLogger("unibus")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")

# Protects the lists and the `done` flag of every CommitResult. One lock for all: it is held for a few instructions, and
# a lock for each group would cost more than it saves.
_GUARD: Final = threading.Lock()
renew_in_child(_GUARD)


_find_loop: "Callable[[], asyncio.AbstractEventLoop | None] | None" = None


def running_loop() -> "asyncio.AbstractEventLoop | None":
    """The event loop that runs in this thread, or None.

    It does not load asyncio: where no other code has, no loop can run. A program that only blocks, such as a command,
    starts in a good part of the time so.
    """
    global _find_loop
    if _find_loop is None:
        if "asyncio" not in sys.modules:
            return None
        # Not taken from `sys.modules`: another thread may be loading it just now, and an import waits for that.
        import asyncio

        _find_loop = asyncio._get_running_loop
    return _find_loop()


@final
class Waiter:
    """A task that waits for a result, with the methods that asyncio's tasks call on a future.

    A real Future schedules its task on the loop itself, one call for each, which costs more than the rest of a send.
    Here hundreds of tasks wait for one write, so `resume` continues them one after the other in a single loop call.
    """

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._asyncio_future_blocking = True  # Marks a future for a task, which resets it when it waits.
        self._loop = loop
        self._wake: Callable[[Waiter], object] | None = None
        self._context: contextvars.Context | None = None
        self._cancelled = False
        self._why: object = None

    # Called by the task
    # The protocol that asyncio.Task needs of what a coroutine yields: the flag above, get_loop, add_done_callback,
    # result and cancel. A task accepts any object with these, so a Waiter need not be a Future.

    def get_loop(self) -> "asyncio.AbstractEventLoop":
        return self._loop

    def add_done_callback(
        self, callback: Callable[["Waiter"], object], *, context: contextvars.Context | None = None
    ) -> None:
        self._wake = callback
        self._context = context

    def result(self) -> None:
        if self._cancelled:
            import asyncio

            raise asyncio.CancelledError() if self._why is None else asyncio.CancelledError(self._why)

    def cancel(self, msg: object = None) -> bool:
        if self._wake is None:
            return False  # The task is resumed already.
        self._cancelled = True
        self._why = msg
        # In a later turn, as a Future does it: the caller of Task.cancel must not run the cancelled task inside its own
        # call. The write still takes place; only this task does not learn its result.
        self._loop.call_soon(self.resume)
        return True

    # Called by CommitResult

    def resume(self) -> None:
        """Continue the task now. Called on the loop, outside of any task. A second call does nothing."""
        wake = self._wake
        context = self._context
        if wake is not None:
            # Before the call: the task may cancel this waiter, or wait again, while it runs.
            self._wake = None
            if context is None:
                wake(self)
            else:
                context.run(wake, self)


class Committing(Protocol):
    """The committer of a store, as a CommitResult needs it."""

    def lead(self, outcome: "CommitResult") -> None:
        """Commit in this thread until `outcome` is decided."""

    def kick(self) -> None:
        """Let the writer thread commit now."""


class CommitResult:
    """The outcome of one group of changes. `failure` makes a new error for each caller; None if the write succeeded.

    `commits` decides it and can be asked to commit now; None if the outcome is decided without being asked.
    `is_decided`: the store has accepted the calls of the group and knows their values; only the write is open. A store
    that answers from elsewhere learns both with the answer.
    """

    def __init__(self, commits: Committing | None) -> None:
        self.done = False
        self.is_decided = commits is not None
        self.failure: Callable[[], BaseException] | None = None
        self.commits = commits
        # Waiting tasks, nearly always all on one loop. Only the thread of that loop touches `_waiters`: no lock.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: list[Waiter] = []
        self._elsewhere: list[Waiter] = []
        self._calls: list[tuple[Callable[[Pending[object]], None], Pending[object]]] = []
        self._arrived: threading.Event | None = None

    def decide(self, failure: Callable[[], BaseException] | None = None) -> None:
        """The group is written, or it failed. Both halves at once."""
        self.settle(failure)
        self.notify(None)

    def settle(self, failure: Callable[[], BaseException] | None) -> None:
        """First half of `decide`: the outcome is set, and no waiter is notified yet."""
        # The committer calls this under its lock `committing` and `notify` after it. A thread that leads acquires
        # `committing` next, so it finds `done` set and does not write a second time.
        with _GUARD:
            self.failure = failure
            self.done = True

    def notify(self, here: "asyncio.AbstractEventLoop | None") -> None:
        """Second half, with no lock held: a callback may call the store again.

        `here` is the running loop, if the caller is a callback of that loop and not a task: then its tasks are resumed
        inside this call instead of through a wake-up.
        """
        # No lock for these reads: `done` is set, so a waiter that is not in a list yet sees it and wakes itself. A
        # waiter that is woken twice does no harm.
        if self._arrived is not None:
            self._arrived.set()
        for call, pending in self._calls:
            try:
                call(pending)
            except Exception:
                log.exception("a callback for the end of a write has raised")  # Still notify the others.
        if self._loop is not None and self._loop is here:
            self._resume()
        elif self._loop is not None:
            _call_on(self._loop, self._resume)
        if self._elsewhere:
            for loop in {waiter.get_loop() for waiter in self._elsewhere}:
                _call_on(loop, partial(self._resume_elsewhere, loop))

    def _resume(self) -> None:
        """On the loop: continue all its tasks."""
        # Swapped first: a resumed task may wait for another group, but never for this one again, and a second call of
        # `_resume` finds nothing to do.
        waiters, self._waiters = self._waiters, []
        begun = 0
        try:
            for waiter in waiters:
                begun += 1
                waiter.resume()
        except BaseException:
            # Only KeyboardInterrupt and SystemExit pass through a task. Resume the other tasks in the next turn.
            self._waiters = waiters[begun:]
            import asyncio

            asyncio.get_running_loop().call_soon(self._resume)
            raise

    def _resume_elsewhere(self, loop: "asyncio.AbstractEventLoop") -> None:
        """On a loop that is not the first one: continue all its tasks by one wake-up."""
        try:
            for waiter in list(self._elsewhere):
                if waiter.get_loop() is loop:
                    waiter.resume()
        except BaseException:
            # As in `_resume`. A waiter that is resumed already does nothing at the second call.
            loop.call_soon(partial(self._resume_elsewhere, loop))
            raise

    def add(self, loop: "asyncio.AbstractEventLoop") -> Waiter:
        """On the loop: a new waiter."""
        waiter = Waiter(loop)
        # The first loop to wait gets the list without a lock. Two loops may arrive together, so the choice is made
        # under the lock, once; the other one goes to `_elsewhere`.
        if self._loop is None:
            with _GUARD:
                self._loop = self._loop or loop
        if self._loop is loop:
            self._waiters.append(waiter)
            if self.done:  # Decided meanwhile: `notify` may have read the list before this waiter was in it.
                _call_on(loop, self._resume)
        else:
            with _GUARD:
                self._elsewhere.append(waiter)
            if self.done:
                _call_on(loop, waiter.resume)
        return waiter

    def call(self, call: "Callable[[Pending[object]], None]", pending: "Pending[object]") -> None:
        with _GUARD:
            # Both under the lock, unlike in `add`: a callback must be called exactly once, and no later wake-up would
            # correct a mistake.
            late = self.done
            if not late:
                self._calls.append((call, pending))
        if late:
            call(pending)
        elif self.commits is not None:
            self.commits.kick()

    def wait(self, timeout_s: float | None) -> None:
        # This thread writes the group itself instead of waking the writer: that saves two thread switches. `lead` has
        # no timeout, because a write in progress cannot be interrupted.
        if self.commits is not None:
            self.commits.lead(self)
        # Still open only if the outcome is decided elsewhere. The event is made here: most results need none.
        if not self.done:
            with _GUARD:
                arrived = self._arrived or threading.Event()
                self._arrived = arrived
            if not self.done and not arrived.wait(timeout_s):
                raise TimeoutError(f"the operation did not end within {timeout_s} s; it may still take effect")


_TOO_EARLY: Final = "the answer of the store has not arrived: wait for the Pending before its value is read"


@final
class NotArrived:
    """The `value` of a Pending whose answer has not arrived. Every use of it raises, so that none passes unnoticed."""

    def __bool__(self) -> bool:
        raise RuntimeError(_TOO_EARLY)

    def __len__(self) -> int:
        raise RuntimeError(_TOO_EARLY)

    def __iter__(self) -> Iterator[object]:
        raise RuntimeError(_TOO_EARLY)

    def __repr__(self) -> str:
        return "<no answer yet>"


NOT_ARRIVED: Final = NotArrived()


class Pending(Generic[T_co]):
    """`value` is the result of the call, as soon as `is_decided`; before that it is no value.

    `loop` is the loop that was running when the call was made, if any: then the Pending is awaited on that loop.
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
    def is_decided(self) -> bool:
        """Whether the store has accepted or refused the call: `value` or `error` is known, though perhaps not durable.

        Always true for an embedded store. It may fail to write afterwards; then it stops.
        """
        outcome = self.outcome
        return outcome is None or outcome.is_decided or outcome.done

    @property
    def is_accepted(self) -> bool:
        """Whether it is decided and not refused: `value` is known. A refusal of a store elsewhere may have arrived
        already when the caller looks for the first time."""
        outcome = self.outcome
        return outcome is None or outcome.is_decided or (outcome.done and outcome.failure is None)

    @property
    def is_immediate(self) -> bool:
        """Whether the call itself has decided it, as those of an embedded store do. Does not change with the answer."""
        outcome = self.outcome
        return outcome is None or outcome.is_decided

    @property
    def error(self) -> BaseException | None:
        """A new object each time: raising one object in many tasks would mix their tracebacks."""
        outcome = self.outcome
        return None if outcome is None or outcome.failure is None else outcome.failure()

    def __repr__(self) -> str:
        return f"<Pending, {'done' if self.done else 'not stored yet'}: await it for the result>"

    def map(self, view: "Callable[[T_co], U]") -> "Pending[U]":
        """The same Pending, whose result is passed through `view`. Replaces an earlier `view`."""
        self._view = cast("Callable[[object], object]", view)
        return cast("Pending[U]", self)

    # Called by the store

    def resolve(self, value: object) -> None:
        """The answer of an `undecided()` Pending has arrived."""
        outcome = self.outcome
        assert outcome is not None
        self.value = cast("T_co", value)  # Before `done` is set: a waiter reads the value without a lock.
        outcome.decide()

    def reject(self, failure: Callable[[], BaseException]) -> None:
        """The call was refused, or its outcome is unknown. `failure` makes a new error for each caller."""
        outcome = self.outcome
        assert outcome is not None
        outcome.decide(failure)

    # Called by the bus

    def on_decided(self, call: "Callable[[Pending[T_co]], None]") -> None:
        """Call `call` when the value or the error is known: at once for an embedded store, else with the answer."""
        if self.is_decided:
            call(self)
        else:
            self.on_done(call)

    def recover(self, call: "Callable[[BaseException], Pending[T_co]]") -> "Pending[T_co]":
        """This result; but if it is a refusal that arrives with the answer, the result of `call(error)`.

        `call` raises the error again, or another one, if it has no other result. It runs in the thread that brings the
        answer, so it must not wait. A refusal that the store raises at once does not get here: catch that as well.
        """
        if self.is_immediate:
            return self
        return cast("Pending[T_co]", _Recovery(cast("Pending[object]", self), call, None).result)

    def tap(self, call: "Callable[[Pending[T_co]], None]") -> "Pending[T_co]":
        """This result, which `call` sees first: it is called with the decided Pending before any waiter has it.

        For an embedded store that is at once. `call` must not wait: see `recover`.
        """
        if self.is_decided:
            call(self)
            return self
        seen = cast("Callable[[Pending[object]], None]", call)
        return cast("Pending[T_co]", _Recovery(cast("Pending[object]", self), _raise, seen).result)

    def on_done(self, call: "Callable[[Pending[T_co]], None]") -> None:
        """Call `call` when the result is decided, in the thread that decides it; at once if it is. It must be quick."""
        if self.outcome is None:
            call(self)
        else:
            self.outcome.call(cast("Callable[[Pending[object]], None]", call), cast("Pending[object]", self))

    def then(self, loop: "asyncio.AbstractEventLoop", call: "Callable[[Pending[T_co]], None]") -> None:
        """Call `call` on the loop when the result is decided, in a later turn. `call` reads it by `result()`.

        Call this on that loop. One group wakes the loop once. For a server with many requests, which would otherwise
        create a task for each only to wait.
        """
        outcome = self.outcome
        if outcome is None or outcome.done:
            loop.call_soon(call, self)
            return
        outcome.add(loop).add_done_callback(partial(_called, call, self))
        if self.loop is None and outcome.commits is not None:
            outcome.commits.kick()  # Made while no loop was running: nothing else would start the commit.

    def __await__(self) -> Generator[object, None, T_co]:
        outcome = self.outcome
        if outcome is None or outcome.done:
            return ready(self.result)
        loop = self.loop
        if loop is None:
            import asyncio

            loop = asyncio.get_running_loop()
        return awaited(outcome.add(loop), self)

    def wait(self, timeout_s: float | None = None) -> T_co:
        """Block this thread until the result is decided. After a TimeoutError the write still takes place."""
        outcome = self.outcome
        if outcome is not None and not outcome.done:
            outcome.wait(timeout_s)
        return self.result()

    def result(self) -> T_co:
        """The decided result; raises the error of a failed write."""
        error = self.error
        if error is not None:
            raise error
        return self.value if self._view is None else cast("T_co", self._view(self.value))


@final
class _Recovery:
    """The result of `Pending.recover`: that of the first call, or that of the call which replaces it.

    `seen` is the callback of `Pending.tap`. A result of its own, since a callback of the first result may run after a
    thread has seen that it is done.
    """

    def __init__(
        self,
        first: Pending[object],
        call: Callable[[BaseException], Pending[object]],
        seen: Callable[[Pending[object]], None] | None,
    ) -> None:
        self.result: Pending[object] = undecided()
        self.result._view = first._view
        self._given = first
        self._call = call
        self._seen = seen
        first.on_done(self._first)

    def _first(self, first: Pending[object]) -> None:
        if self._seen is not None:
            try:
                self._seen(first)
            except Exception:
                log.exception("a callback that was given to Pending.tap has raised")  # Still give the result.
        error = first.error
        if error is None:
            self._pass_on(first)
            return
        try:
            second = self._call(error)
        except BaseException as other:
            self.result.reject(repeated(other))
            return
        second.on_done(self._pass_on)

    def _pass_on(self, given: Pending[object]) -> None:
        try:
            # The view of the first is that of the result, so that a later `map` replaces it as in any other Pending.
            value = given.value if given is self._given else given.result()
            error = given.error
        except BaseException as raised:
            error = raised
        if error is None:
            self.result.resolve(value)
        else:
            self.result.reject(repeated(error))


def _raise(error: BaseException) -> Pending[object]:
    raise error


def repeated(error: BaseException) -> Callable[[], BaseException]:
    """Makes the same error for each caller, as a new object."""
    return partial(_copied, error)


def _copied(error: BaseException) -> BaseException:
    # An exception of others may have a constructor of its own, and could not be copied.
    copied = copy.copy(error) if isinstance(error, BusError) else error
    copied.__cause__ = error.__cause__
    return copied


def _called(call: "Callable[[Pending[T]], None]", pending: "Pending[T]", waiter: Waiter) -> None:
    try:
        call(pending)
    except Exception:
        log.exception("a callback that was given to Pending.then has raised")  # Still call the others.


def _call_on(loop: "asyncio.AbstractEventLoop", call: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        # The loop is closed, so no task waits on it any more.
        return


def undecided() -> "Pending[T]":
    """A Pending without a value, for a store whose answer arrives later: it calls `resolve` or `reject`."""
    return Pending(cast("T", NOT_ARRIVED), CommitResult(None))


def resolved(value: T) -> Pending[T]:
    """A Pending that is decided already."""
    return Pending(value)
