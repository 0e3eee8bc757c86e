"""Cancel a call at its N-th suspension: at once, or as late as that is possible.

*At once*: while it waits. *Late*: what it waited for is there, and its task has not been resumed yet. There a call must
not lose what it was just given.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

BLOCKED_S = 0.03
"""A call that is neither over nor there by then waits for what happens meanwhile. Should it only be slow, the same
happens a little earlier: the result is as good."""

TURNS = 8  # Of the loop: for whatever a call has left behind to come to rest.


class Stepped:
    """An awaitable that counts the suspensions of another one, and cancels the task at one of them."""

    def __init__(self, awaited: Awaitable[Any], at: int, late: bool, suspended: asyncio.Event) -> None:
        self._awaited = awaited
        self._at = at
        self._late = late
        self._suspended = suspended
        self.count = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._awaited.__await__()
        error: BaseException | None = None
        while True:
            try:
                waited = inner.send(None) if error is None else inner.throw(error)  # type: ignore[attr-defined]
            except StopIteration as end:
                return end.value
            self.count += 1
            if self.count == self._at:
                waited = self._late_future(waited) if self._late else waited
                self._cancel(waited)
            error = None
            try:
                yield waited
            except BaseException as raised:
                error = raised

    def _late_future(self, waited: Any) -> Any:
        """A real future for one that resumes its task without a turn of the loop in between: a Waiter of a store."""
        if waited is None or isinstance(waited, asyncio.Future):
            return waited
        future = asyncio.get_running_loop().create_future()
        waited.add_done_callback(lambda _: None if future.done() else future.set_result(None))
        future._asyncio_future_blocking = True
        return future

    def _cancel(self, waited: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._suspended.set()
        if self._late and waited is not None:
            # The callbacks of a future are called in order, and that of the task is added after this one.
            waited.add_done_callback(lambda _: task.cancel())
        else:
            task.cancel()


class Run:
    """What became of a call: `returned` something, `raised` an error, or was cancelled."""

    def __init__(self) -> None:
        self.suspensions = 0
        self.returned = False
        self.value: object = None
        self.raised: Exception | None = None

    @property
    def cancelled(self) -> bool:
        return not self.returned and self.raised is None


async def cancelled_at(
    at: int, late: bool, call: Callable[[], Awaitable[Any]], meanwhile: Callable[[], Awaitable[Any]], guard_s: float
) -> Run:
    """Make the call in a task of its own and cancel it at that suspension; 0 never does. `meanwhile` happens then."""
    run = Run()
    suspended = asyncio.Event()

    async def called() -> None:
        stepped = Stepped(call(), at, late, suspended)
        try:
            run.value = await stepped
            run.returned = True
        except Exception as error:
            run.raised = error
        finally:
            run.suspensions = stepped.count

    task = asyncio.create_task(called())
    async with asyncio.timeout(guard_s):
        waiting = asyncio.create_task(suspended.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED, timeout=BLOCKED_S)
        waiting.cancel()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        await meanwhile()
        await asyncio.wait([task])
    return run
