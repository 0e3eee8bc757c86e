# mypyc: compiled
"""Async handlers: slots as tasks on the loop that the handler was subscribed from.

A slot is one long-lived task that awaits one handler after the other, so that a handler which does not suspend costs
no task, and `asyncio.timeout` and friends find a current task. An idle slot awaits a future. Other threads wake a
slot through the loop's own queue, once per idle slot and not once per message.

A claimed slot has one owner at any time: the call that is in the loop's queue (loop_call.py), then its Slot. Each of
them gives the slot up if it cannot begin: the call when the loop drops it, the Slot when its task ends, be it cancelled
before its first step. Of a loop that was closed nothing is heard any more; who looks at the loop finds it so. A loop
whose tasks are all cancelled is about to be closed: no new task is started on it for a while.
"""

import asyncio
from _thread import get_ident
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from functools import partial
from typing import Final, cast, final

from mypy_extensions import i64

from unibus.bus.pubsub.delivery import QUANTUM, TAKES_MESSAGE, SlotRunner, call, wants_reply
from unibus.bus.pubsub.group import INSIDE, Consumer, HandlerExecutor, wake, wake_blocked
from unibus.bus.pubsub.loop_call import LoopCall
from unibus.core.atomic import LOCK
from unibus.core.envelope.message import Message

ENDING_S: Final = 1.0
"""How long a slot waits that was woken while all tasks of its loop are cancelled: a loop that ends closes before that,
and the slot is given up. One that goes on starts it."""

# The slot that the current task is, or was started by.
SLOT: Final[ContextVar["asyncio.Task[None] | None"]] = ContextVar("unibus_slot", default=None)


@final
class Slot:
    """One task that runs a consumer's handler. `claimed` and `running` are its part in the counts of the group."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.claimed = True
        self.running = False
        self.task: asyncio.Task[None] | None = None
        self.parked: asyncio.Future[None] | None = None  # What it waits for while it is idle.


@final
class LoopExecutor(HandlerExecutor):
    """The slots of one event loop."""

    def __init__(
        self,
        delivery: SlotRunner,
        loop: asyncio.AbstractEventLoop,
        report: Callable[[BaseException], None],
        owned: bool,
    ) -> None:
        self.loop = loop
        self.busy: i64 = 0  # Slots that are not parked.
        self._owned = owned  # The bus's own loop, which must survive whatever a handler raises.
        self._delivery = delivery
        self._outcomes = delivery.outcomes
        self._report = report
        self._after_cancel = False  # A slot that was cancelled passes on what it has not handled.
        self._ident = 0  # Of the loop's thread, known once it has run something of ours.
        self._parked: dict[int, list[Slot]] = {}
        self._slots: dict[int, list[Slot]] = {}

    def launch(self, consumer: Consumer) -> bool:
        if self._delivery.paused:
            return self._give_up(consumer)
        if self.loop.is_closed():
            consumer.group.give_up(consumer)
            self.mark_unrunnable(consumer)
            return False
        if get_ident() == self._ident:
            self.start(consumer)
        else:
            call = LoopCall(consumer, self.start, self._dropped)
            try:
                self.loop.call_soon_threadsafe(call)
            except RuntimeError:
                return False  # Closed in this very moment; the call gives the slot up.
        # A loop that does not run may never run again. What is first takes the message, the other finds none.
        return self._owned or self.loop.is_running()

    def _is_ending(self) -> bool:
        """Whether the loop is about to be closed, as `asyncio.run` does it: every one of its tasks is cancelled.

        A task that is started now would be cancelled by nothing: the loop is closed with it, in the middle of a
        handler, and asyncio reports a task that "was destroyed but it is pending".
        """
        if self._owned or not (self._after_cancel or _is_cancelled_here()):
            return False
        return all([task.cancelling() > 0 for task in asyncio.all_tasks(self.loop)])

    def _give_up(self, consumer: Consumer) -> bool:
        """Its messages wait for the start. False if that has come: it found the slot claimed, and did not wake it."""
        consumer.group.give_up(consumer)
        return self._delivery.paused

    def _dropped(self, consumer: Consumer) -> None:
        """The loop was closed with a call to `start` in its queue."""
        consumer.group.give_up(consumer)
        if self.loop.is_closed():
            self.mark_unrunnable(consumer)
        wake(consumer.group)

    def mark_unrunnable(self, consumer: Consumer) -> None:
        """The loop is closed: messages that wait for a consumer on it are for the others."""
        consumer.group.mark_unrunnable(self)
        self.abandon()
        self._check_runnable(consumer)

    def abandon(self) -> None:
        """End the slots of a closed loop, which resumes none of its tasks: their messages go back to the queues."""
        with LOCK:
            slots = [slot for slots in self._slots.values() for slot in slots]
            self._slots.clear()
            self._parked.clear()
        for slot in slots:
            slot.consumer.group.mark_unrunnable(self)
        for slot in slots:
            if slot.task is not None:
                try:
                    cast("Coroutine[object, object, None]", slot.task.get_coro()).close()
                except RuntimeError as error:  # A handler that awaits something when it is ended.
                    self._report(error)
            self._end(slot)
        for slot in slots:
            self._check_runnable(slot.consumer)

    def _check_runnable(self, consumer: Consumer) -> None:
        """If no consumer is left that could run, what waits in the group's queue goes back to where it came from."""
        group = consumer.group
        if group.on_no_runnable_consumer is not None and group.has_no_runnable_consumer():
            group.on_no_runnable_consumer()

    def is_here(self) -> bool:
        """Whether the caller runs on this loop's thread."""
        return get_ident() == self._ident

    def is_empty(self) -> bool:
        """Whether it has no slot, be it idle."""
        return not any([len(slots) > 0 for slots in self._slots.values()])

    def is_at_rest(self) -> bool:
        """Whether none of its handlers is running, but for the one that asks."""
        mine = SLOT.get()
        asking = mine is not None and mine.get_loop() is self.loop
        return self.busy == (1 if asking else 0) or self.loop.is_closed()

    def cancel(self, consumer: Consumer) -> list["asyncio.Task[None]"]:
        """End the consumer's slots; on the loop's thread. What they were handling goes back to the queue.

        A handler that cancels itself is let finish.
        """
        self._parked.pop(consumer.id, None)
        return self._cancelled(self._slots.pop(consumer.id, []))

    def cancel_all(self, spared: list["asyncio.Task[None]"] | None = None) -> list["asyncio.Task[None]"]:
        """The same for every consumer; but for some slots, which end after what they are doing."""
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
        """On the loop's thread: let a claimed slot begin."""
        self._ident = get_ident()
        parked = self._parked.get(consumer.id)
        while parked:
            slot = parked.pop()
            if slot.parked is not None and not slot.parked.done():
                slot.claimed = True
                slot.parked.set_result(None)
                return
        if self._is_ending():
            self.loop.call_later(ENDING_S, LoopCall(consumer, self.start, self._dropped))
            return
        slot = Slot(consumer)
        task = self.loop.create_task(self._slot(slot), name=f"unibus-slot-{consumer.id}")
        slot.task = task
        self._slots.setdefault(consumer.id, []).append(slot)
        task.add_done_callback(partial(self._over, slot))

    def _over(self, slot: Slot, task: "asyncio.Task[None]") -> None:
        """Its task has ended. One that was cancelled before its first step has run nothing of `_slot`."""
        self._end(slot)

    async def _slot(self, slot: Slot) -> None:
        consumer = slot.consumer
        group = consumer.group
        shape = consumer.shape
        left: i64 = QUANTUM
        INSIDE.set(consumer)
        SLOT.set(asyncio.current_task())
        self._begin(slot)
        try:
            while not self._delivery.paused:
                message = group.next_for(consumer)
                if message is None:
                    slot.claimed = slot.running = False
                    self.busy -= 1
                    self._outcomes.on_idle(group)
                    if consumer.cancelled:
                        return
                    await self._park(slot)
                    self._begin(slot)
                    continue
                if group.has_blocked():
                    wake_blocked(group)
                if not self._delivery.prepare(consumer, message):
                    continue
                # Written out here and not in a coroutine of its own, which would cost as much as the queue.
                try:
                    started = consumer.handler(message) if shape == TAKES_MESSAGE else call(consumer, message)
                    result = await cast("Awaitable[object]", started)
                    if result is not None or wants_reply(message):
                        self._outcomes.answered(consumer, message, result)
                except BaseException as error:
                    self._failed(consumer, message, error)
                else:
                    group.acked(self._delivery.metrics_of(consumer, message))
                left -= 1
                if left == 0:
                    left = QUANTUM
                    await asyncio.sleep(0)
        finally:
            self._end(slot)

    def _begin(self, slot: Slot) -> None:
        slot.running = True
        self.busy += 1
        slot.consumer.group.begin()

    async def _park(self, slot: Slot) -> None:
        slot.parked = self.loop.create_future()
        self._parked.setdefault(slot.consumer.id, []).append(slot)
        await slot.parked

    def _end(self, slot: Slot) -> None:
        """Called when it has ended, maybe twice: what it still has of the group's counts goes back."""
        consumer = slot.consumer
        group = consumer.group
        for slots_by_id in (self._slots, self._parked):
            slots = slots_by_id.get(consumer.id)
            if slots is not None and slot in slots:
                slots.remove(slot)
                if not slots:
                    del slots_by_id[consumer.id]  # It may have been cancelled, and then it is not heard of again.
        if slot.running:
            slot.running = False
            self.busy -= 1
            group.suspend()
        if slot.claimed:
            slot.claimed = False
            group.give_up(consumer)
            # What it was woken for, or has handed back, is for another slot, or for a new one of this consumer.
            self._after_cancel = slot.task is not None and slot.task.cancelling() > 0
            wake(group)
            self._after_cancel = False
            self._check_runnable(consumer)
            self._outcomes.on_idle(group)

    def _failed(self, consumer: Consumer, message: Message, error: BaseException) -> None:
        """Settle a handler that raised; what ends the slot is raised again."""
        if isinstance(error, GeneratorExit):
            # Nobody ended it: its loop was closed under it, and there is nothing left to run on.
            consumer.group.restore(message)
            raise error
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            # We are being cancelled, it is not the handler's own doing: the message goes back, it is not lost.
            consumer.group.restore(message)
            raise error
        self._outcomes.failed(consumer, message, error)
        if not isinstance(error, (Exception, asyncio.CancelledError)):
            if not self._owned:
                raise error
            self._report(error)


def _is_cancelled_here() -> bool:
    """Whether the caller is a task that is being cancelled."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False  # No loop runs here.
    return task is not None and task.cancelling() > 0
