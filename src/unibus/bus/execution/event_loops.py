# mypyc: compiled
"""Async handlers: their slots are tasks on the event loop that the handler was subscribed from.

    launch (any thread) ──LoopCall──▶ start (loop's thread) ──▶ Slot task: next_for ─▶ handler ─▶ next_for ─▶ … parked
                                          ▲                                                                       │
                                          └──────────── an idle slot is parked on a future ◀──────────────────────┘

A slot is one long-lived task that awaits one handler after the other. So a handler that does not suspend costs no new
task, and `asyncio.timeout` and the like find a current task. Other threads wake a slot through the loop's own queue,
once for each idle slot and not once for each message.

Invariant: a claimed slot has exactly one owner. First it is the call in the loop's queue (loop_call.py), then its Slot.
The owner gives the slot up if it cannot begin: the call when the loop drops it, the Slot when its task ends, even
before its first step. Without that the group would count a slot as busy for ever.

A closed loop reports nothing, so each caller that finds it closed recovers its slots (`abandon`). A loop whose tasks
are all cancelled is about to be closed, as `asyncio.run` does it: no new task is started on it for a while.
"""

import asyncio
from _thread import get_ident
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from functools import partial
from typing import Final, cast, final

from mypy_extensions import i64

from unibus.bus.execution.loop_watch import LoopWatch
from unibus.bus.pubsub.delivery import QUANTUM, TAKES_MESSAGE, SlotRunner, call, wants_reply
from unibus.bus.pubsub.group import INSIDE, Consumer, HandlerExecutor, wake, wake_blocked
from unibus.bus.pubsub.loop_call import LoopCall
from unibus.core.atomic import LOCK
from unibus.core.envelope.message import Message

ENDING_S: Final = 1.0
"""How long the start of a slot is delayed while all tasks of its loop are cancelled. A loop that ends is closed before
that, and the slot is given up; on a loop that continues the slot starts."""

# The slot task that is the current task, or has started it.
SLOT: Final[ContextVar["asyncio.Task[None] | None"]] = ContextVar("unibus_slot", default=None)


@final
class Slot:
    """One task that runs a consumer's handler. `claimed` and `running` are its share in the counts of the group."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.claimed = True
        self.running = False
        self.task: asyncio.Task[None] | None = None
        self.parked: asyncio.Future[None] | None = None  # The future that it awaits while it is idle.


@final
class LoopExecutor(HandlerExecutor):
    """The slots of one event loop."""

    def __init__(
        self,
        delivery: SlotRunner,
        loop: asyncio.AbstractEventLoop,
        watch: LoopWatch,
        report: Callable[[BaseException], None],
        owned: bool,
    ) -> None:
        # Only the loop's thread changes the slots and their counts, so they need no lock; other threads read them. One
        # exception: `abandon` runs in any thread, after the loop is closed and its thread changes nothing any more.
        self.loop = loop
        self.watch = watch
        self._owned = owned  # The bus's own loop: it must survive everything that a handler raises.
        self._delivery = delivery
        self._outcomes = delivery.outcomes
        self._report = report
        self._after_cancel = False  # A cancelled slot is waking another one for its messages.
        self._ident = 0  # Of the loop's thread; 0 until the loop has run `start` once.
        self._parked: dict[int, list[Slot]] = {}
        self._slots: dict[int, list[Slot]] = {}

    def launch(self, consumer: Consumer) -> bool:
        if self._delivery.paused:
            return self._give_up(consumer)
        # A closed loop runs no handler again. Its slots are given up and its consumers marked, so that the caller
        # (False) wakes a consumer that can run; the messages of a group without one go back to their owner.
        if self.loop.is_closed():
            consumer.group.give_up(consumer)
            self.mark_unrunnable(consumer)
            return False
        # On the loop's own thread no call through its queue is needed. `_ident` is 0 until `start` has run there once.
        if get_ident() == self._ident:
            self.start(consumer)
        else:
            call = LoopCall(consumer, self.start, self._dropped)
            try:
                self.loop.call_soon_threadsafe(call)
            except RuntimeError:
                return False  # The loop was closed since the check; the finalizer of the call gives the slot up.
        # A loop that does not run may never run again: False wakes a slot of another consumer, too. The first of the
        # two takes the message, the other finds an empty queue.
        return self._owned or self.loop.is_running()

    def _is_ending(self) -> bool:
        """Whether the loop is about to be closed, as `asyncio.run` does it: all its tasks are cancelled.

        Nothing would cancel a task that is started now: the loop would be closed with it in the middle of a handler,
        and asyncio would report "Task was destroyed but it is pending".
        """
        if self._owned or not (self._after_cancel or _is_cancelled_here()):
            return False
        return all([task.cancelling() > 0 for task in asyncio.all_tasks(self.loop)])

    def _give_up(self, consumer: Consumer) -> bool:
        """The bus is stopped: the messages wait for start(). False if start() came meanwhile: it saw the slot claimed
        and woke none, so the caller has to."""
        consumer.group.give_up(consumer)
        return self._delivery.paused

    def _dropped(self, consumer: Consumer) -> None:
        """The loop was closed with a call of `start` in its queue."""
        # Runs in a finalizer, in whatever thread destroys the call. The message itself was never popped: it waits in
        # the group, and only the claim has to be returned.
        consumer.group.give_up(consumer)
        if self.loop.is_closed():
            self.mark_unrunnable(consumer)
        wake(consumer.group)

    def mark_unrunnable(self, consumer: Consumer) -> None:
        """The loop is closed: its consumers cannot run again, other consumers get the messages."""
        consumer.group.mark_unrunnable(self)
        self.abandon()
        self._check_runnable(consumer)

    def abandon(self) -> None:
        """End the slots of a closed loop, which resumes none of its tasks: requeues their messages."""
        # Several threads may find the loop closed at once. The swap under LOCK gives each slot to one of them, so that
        # no coroutine is closed twice.
        with LOCK:
            slots = [slot for slots in self._slots.values() for slot in slots]
            self._slots.clear()
            self._parked.clear()
        # First mark all, then close: a closed slot wakes its group, and must not claim a slot of this closed loop
        # again.
        for slot in slots:
            slot.consumer.group.mark_unrunnable(self)
        for slot in slots:
            if slot.task is not None:
                try:
                    # Raises GeneratorExit inside the handler; `_failed` then restores its message.
                    cast("Coroutine[object, object, None]", slot.task.get_coro()).close()
                except RuntimeError as error:  # The handler ignored GeneratorExit and awaited something.
                    self._report(error)
            self._end(slot)
        for slot in slots:
            self._check_runnable(slot.consumer)

    def _check_runnable(self, consumer: Consumer) -> None:
        """If no consumer can run any more, let the group's owner take back the messages (a pump releases them)."""
        group = consumer.group
        if group.on_no_runnable_consumer is not None and group.has_no_runnable_consumer():
            group.on_no_runnable_consumer()

    def is_here(self) -> bool:
        """Whether the caller runs on this loop's thread."""
        return get_ident() == self._ident

    def is_empty(self) -> bool:
        """Whether it has no slot at all, not even an idle one."""
        return not any([len(slots) > 0 for slots in self._slots.values()])

    def is_at_rest(self) -> bool:
        """Whether none of its handlers is running, except the caller."""
        mine = SLOT.get()
        asking = mine is not None and mine.get_loop() is self.loop
        return self.watch.busy == (1 if asking else 0) or self.loop.is_closed()

    def cancel(self, consumer: Consumer) -> list["asyncio.Task[None]"]:
        """Cancel the consumer's slots, on the loop's thread. Their messages are requeued.

        A handler that cancels its own subscription finishes.
        """
        # Removed from the tables before the cancellation takes effect: a `start` in between must not revive a parked
        # task that is about to end. `_end` returns the slots' share of the counts when each task has ended.
        self._parked.pop(consumer.id, None)
        return self._cancelled(self._slots.pop(consumer.id, []))

    def cancel_all(self, spared: list["asyncio.Task[None]"] | None = None) -> list["asyncio.Task[None]"]:
        """The same for every consumer. The `spared` slots end after their current message."""
        slots = [slot for slots in self._slots.values() for slot in slots]
        if spared:
            slots = [slot for slot in slots if slot.task not in spared]
        self._parked.clear()
        self._slots.clear()
        return self._cancelled(slots)

    def _cancelled(self, slots: list[Slot]) -> list["asyncio.Task[None]"]:
        mine = SLOT.get()
        others = [slot.task for slot in slots if slot.task is not None and slot.task is not mine]
        for task in others:
            task.cancel()
        return others

    def start(self, consumer: Consumer) -> None:
        """On the loop's thread: let a claimed slot begin, in a parked task or a new one."""
        self._ident = get_ident()
        parked = self._parked.get(consumer.id)
        while parked:
            slot = parked.pop()
            if slot.parked is not None and not slot.parked.done():  # A done future: the parked task was cancelled.
                # Claimed before it is resumed: if the task is cancelled before it runs, `_end` sees the claim and gives
                # it up.
                slot.claimed = True
                slot.parked.set_result(None)
                return
        if self._is_ending():
            self.loop.call_later(ENDING_S, LoopCall(consumer, self.start, self._dropped))
            return
        # The done callback, not a `finally` in the coroutine, is the last guard: a task that is cancelled before its
        # first step never enters the coroutine.
        slot = Slot(consumer)
        task = self.loop.create_task(self._slot(slot), name=f"unibus-slot-{consumer.id}")
        slot.task = task
        self.watch.tasks[task] = consumer
        self.watch.ident = self._ident
        self._slots.setdefault(consumer.id, []).append(slot)
        task.add_done_callback(partial(self._over, slot))

    def _over(self, slot: Slot, task: "asyncio.Task[None]") -> None:
        """The task has ended. One that was cancelled before its first step has not even entered `_slot`."""
        self._end(slot)

    async def _slot(self, slot: Slot) -> None:
        consumer = slot.consumer
        group = consumer.group
        shape = consumer.shape
        left: i64 = QUANTUM
        task = asyncio.current_task()
        # In the context of this task only, and inherited by tasks that the handler starts: they count as its handler,
        # too.
        INSIDE.set(consumer)
        SLOT.set(task)
        self._begin(slot)
        try:
            while not self._delivery.paused:
                message = group.next_for(consumer)
                if message is None:
                    # next_for has made the slot idle in the group's counts. No await before the park: a `start` that
                    # waits in the loop's queue runs after it, and finds the task in `_parked`.
                    slot.claimed = slot.running = False
                    self.watch.busy -= 1
                    self._outcomes.on_idle(group)
                    if consumer.cancelled or (task is not None and task.cancelling() > 0):
                        return  # Also after a handler that swallowed its cancellation: the canceller waits.
                    await self._park(slot)
                    self._begin(slot)
                    continue
                # The pop has freed a place: wake a blocked publisher before the handler, which may take long.
                if group.has_blocked():
                    wake_blocked(group)
                if not self._delivery.prepare(consumer, message):
                    continue
                # Inline, not in a coroutine of its own: an extra coroutine would cost as much as the queue.
                try:
                    started = consumer.handler(message) if shape == TAKES_MESSAGE else call(consumer, message)
                    result = await cast("Awaitable[object]", started)
                    if result is not None or wants_reply(message):
                        self._outcomes.answered(consumer, message, result)
                except BaseException as error:
                    self._failed(slot, message, error)
                else:
                    group.acked(self._delivery.metrics_of(consumer, message))
                # Handlers that never suspend would keep the loop for as long as messages come. The quantum lets other
                # tasks run.
                left -= 1
                if left == 0:
                    left = QUANTUM
                    await asyncio.sleep(0)
        finally:
            self._end(slot)

    def _begin(self, slot: Slot) -> None:
        slot.running = True
        self.watch.busy += 1
        if not self.watch.is_watching:
            self.watch.start()
        slot.consumer.group.begin()

    async def _park(self, slot: Slot) -> None:
        slot.parked = self.loop.create_future()
        self._parked.setdefault(slot.consumer.id, []).append(slot)
        await slot.parked

    def _end(self, slot: Slot) -> None:
        """The slot has ended: return its share of the group's counts. May be called twice (`_slot` and `_over`)."""
        consumer = slot.consumer
        group = consumer.group
        for slots_by_id in (self._slots, self._parked):
            slots = slots_by_id.get(consumer.id)
            if slots is not None and slot in slots:
                slots.remove(slot)
                if not slots:
                    del slots_by_id[consumer.id]  # Nothing else would remove the entry of a cancelled consumer.
        if slot.task is not None:
            self.watch.tasks.pop(slot.task, None)
        # Each flag is reset before its count is returned: `_slot` and the done callback both call this, and the second
        # call finds nothing left to return.
        if slot.running:
            slot.running = False
            self.watch.busy -= 1
            group.suspend()
        if slot.claimed:
            slot.claimed = False
            group.give_up(consumer)
            # The message that it was woken for, or has requeued, needs another slot, maybe of the same consumer.
            self._after_cancel = slot.task is not None and slot.task.cancelling() > 0
            wake(group)
            self._after_cancel = False
            self._check_runnable(consumer)
            self._outcomes.on_idle(group)

    def _failed(self, slot: Slot, message: Message, error: BaseException) -> None:
        """Settle the message of a handler that raised. Raises again what has to end the slot."""
        consumer = slot.consumer
        if is_closed_from_outside(slot.task, error):
            # The loop was closed while the handler ran (`abandon`): requeue, it has neither returned nor failed.
            consumer.group.restore(message)
            raise error
        # By the type, here and below: `isinstance` may call a method of the exception, which may raise.
        kind = type(error)
        if issubclass(kind, asyncio.CancelledError) and slot.task is not None and slot.task.cancelling():
            # The slot itself is being cancelled, the handler has not failed: requeue the message, it must not be lost.
            consumer.group.restore(message)
            raise error
        # Also for SystemExit and KeyboardInterrupt: the message becomes a retry or is dead-lettered before the slot
        # ends.
        self._outcomes.failed(consumer, message, error)
        if ends_slot(error):
            # On a loop of the user the exception ends the loop, as it does in any other task. The bus's own loop serves
            # other handlers, and no caller would see the exception: it is logged.
            if not self._owned:
                raise error
            self._report(error)


def is_closed_from_outside(task: object, error: BaseException) -> bool:
    """Whether the coroutine of a task is being closed. GeneratorExit of a handler is a failure: its task runs."""
    return issubclass(type(error), GeneratorExit) and _current_task() is not task


def ends_slot(error: BaseException) -> bool:
    """Whether an exception of an async handler concerns more than its message: SystemExit, KeyboardInterrupt."""
    return not issubclass(type(error), (Exception, asyncio.CancelledError, GeneratorExit))


def _is_cancelled_here() -> bool:
    """Whether the current task is being cancelled."""
    task = _current_task()
    return task is not None and task.cancelling() > 0


def _current_task() -> "asyncio.Task[object] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None  # No loop runs here.
