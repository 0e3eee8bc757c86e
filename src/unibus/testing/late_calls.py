"""Calls that are decided later and answered later still, as over a network, in an order that is drawn from a seed.

    call ──▶ waits ──▶ decided ──▶ waits ──▶ answered          one thread for all calls of one store
      └─────▶ an undecided Pending, at once

Kept: the calls of one caller (a task, or a thread outside of tasks) are decided and answered in the order in which they
were made. Drawn: which caller is next, and whether a decision or an answer is. So answers of different callers arrive
in another order than their decisions, and a refusal arrives with the answer.
"""

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, cast

from unibus.safe_log import SafeLogger
from unibus.stores.seam.pending import Pending, repeated, undecided
from unibus.threads import DaemonThread

log = SafeLogger("unibus")
T = TypeVar("T")

PAUSE_S_MAX: Final = 0.0004
"""Before each step, drawn: long enough for the caller to continue before its call is decided, which is the purpose."""


LOST_CHANCE = 0.3  # Not final: a test may lose every answer.
"""How often the answer of a batch is lost, and the batch is sent again."""


def ask_again(ask: Callable[[], Pending[T]]) -> Pending[T]:
    """Lose the answer of a call, and give that of the same call made again. A refusal is not lost."""
    answer: Pending[T] = undecided()

    def give(second: Pending[T]) -> None:
        error = second.error
        if error is not None:
            answer.reject(repeated(error))
        else:
            answer.resolve(second.result())

    def lose(first: Pending[T]) -> None:
        if first.error is not None:
            give(first)
            return
        try:
            ask().on_done(give)
        except BaseException as error:
            answer.reject(repeated(error))

    ask().on_done(lose)
    return answer


class LateCall:
    """A call, its answer for the caller, and the answer of the store once it is decided."""

    def __init__(self, ask: Callable[[], Pending[object]]) -> None:
        self.ask = ask
        self.answer: Pending[object] = undecided()
        self.real: Pending[object] | None = None
        self.refusal: BaseException | None = None

    def decide(self) -> None:
        try:
            self.real = self.ask()
        except BaseException as error:
            self.refusal = error

    def has_answer(self) -> bool:
        return self.refusal is not None or (self.real is not None and self.real.done)

    def give(self) -> None:
        """Answer the caller. Its callbacks run in this thread, as with every store."""
        if self.refusal is not None:
            self.answer.reject(repeated(self.refusal))
            return
        assert self.real is not None
        error = self.real.error
        if error is not None:
            self.answer.reject(repeated(error))
        else:
            self.answer.resolve(self.real.result())


class OpenCalls:
    """The open calls of one task or thread, each kind in order."""

    def __init__(self) -> None:
        self.undecided: deque[LateCall] = deque()
        self.unanswered: deque[LateCall] = deque()


class LateCalls:
    """The thread that decides and answers. It starts with the first call and ends with `close`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._losses = random.Random(seed)  # Of its own: which answers are lost does not depend on how threads run.
        # Protects `_callers`, `_open` and `_is_closed`. Not held while a call is decided or answered: both call back.
        self._changed = threading.Condition()
        self._callers: dict[object, OpenCalls] = {}
        self._open = 0  # Calls that are not answered, or whose callbacks still run.
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def call(self, ask: Callable[[], Pending[T]]) -> Pending[T]:
        """Make the call later. After `close` it is made at once: nothing is left that could answer it."""
        late = LateCall(cast("Callable[[], Pending[object]]", ask))
        with self._changed:
            if self._is_closed:
                return ask()
            self._callers.setdefault(_caller(), OpenCalls()).undecided.append(late)
            self._open += 1
            if self._thread is None:
                self._thread = DaemonThread(self._run, "unibus-late-store")
                self._thread.start()
            self._changed.notify_all()
        return cast("Pending[T]", late.answer)

    def loses(self) -> bool:
        """Whether the answer of the next batch is lost, as drawn."""
        with self._changed:
            return self._losses.random() < LOST_CHANCE

    def is_idle(self) -> bool:
        """Whether every call is answered, and the callbacks of the answers have returned."""
        return self._open == 0

    def close(self) -> None:
        """Decide and answer every open call, then end the thread."""
        with self._changed:
            while self._open and threading.current_thread() is not self._thread:
                self._changed.wait()
            self._is_closed = True
            self._changed.notify_all()
        thread = self._thread
        if thread is not None and threading.current_thread() is not thread:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while (step := self._draw()) is None:
                    if self._is_closed and not self._open:
                        return
                    self._changed.wait()
            time.sleep(self._random.random() * PAUSE_S_MAX)
            step()

    def _draw(self) -> Callable[[], None] | None:
        """The next step; None if there is none now. The caller holds the lock."""
        steps: list[Callable[[], None]] = []
        for caller in self._callers.values():
            if caller.undecided:
                steps.append(partial(self._decide, caller))
            if caller.unanswered and caller.unanswered[0].has_answer():
                steps.append(partial(self._give, caller))
        return self._random.choice(steps) if steps else None

    def _decide(self, caller: OpenCalls) -> None:
        late = caller.undecided[0]
        late.decide()
        with self._changed:
            caller.unanswered.append(caller.undecided.popleft())
        if late.real is not None:
            late.real.on_done(self._notice)

    def _notice(self, real: Pending[object]) -> None:
        with self._changed:
            self._changed.notify_all()

    def _give(self, caller: OpenCalls) -> None:
        with self._changed:
            late = caller.unanswered.popleft()
            if not caller.undecided and not caller.unanswered:
                self._callers = {key: each for key, each in self._callers.items() if each is not caller}
        try:
            late.give()
        except BaseException:
            log.exception("an answer of a late store could not be given")
        finally:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()


def _caller() -> object:
    """The task, or the thread outside of tasks: calls of one caller keep their order."""
    try:
        return asyncio.current_task() or threading.get_ident()
    except RuntimeError:
        return threading.get_ident()
