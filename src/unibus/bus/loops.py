# mypyc: compiled
"""Async handlers: slots as tasks on the loop that the handler was subscribed from.

A slot is one long-lived task that awaits one handler after the other, so that a handler which does not suspend costs
no task, and `asyncio.timeout` and friends find a current task. An idle slot awaits a future. Other threads wake a
slot through the loop's own queue, once per idle slot and not once per message.
"""

import asyncio
from _thread import get_ident
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final, cast, final

from mypy_extensions import i64

from unibus.bus.delivery import QUANTUM, TAKES_MESSAGE, Delivery, call, wants_reply
from unibus.bus.group import INSIDE, Consumer, Launcher, notify, wake
from unibus.core.message import Message

# The slot that the current task is, or was started by.
SLOT: Final[ContextVar["asyncio.Task[None] | None"]] = ContextVar("unibus_slot", default=None)


@final
class LoopLauncher(Launcher):
    """The slots of one event loop."""

    def __init__(
        self, delivery: Delivery, loop: asyncio.AbstractEventLoop, report: Callable[[BaseException], None], owned: bool
    ) -> None:
        self.loop = loop
        self.busy: i64 = 0  # Slots that are not parked.
        self._owned = owned  # The bus's own loop, which must survive whatever a handler raises.
        self._delivery = delivery
        self._aftermath = delivery.aftermath
        self._report = report
        self._ident = 0  # Of the loop's thread, known once it has run something of ours.
        self._parked: dict[int, list[asyncio.Future[None]]] = {}
        self._tasks: dict[int, list[asyncio.Task[None]]] = {}

    def launch(self, consumer: Consumer) -> None:
        if self._delivery.paused or self.loop.is_closed():
            # The message stays in its queue: until the bus is started, or until somebody else can take it.
            consumer.group.give_up(consumer)
        elif get_ident() == self._ident:
            self._start(consumer)
        else:
            try:
                self.loop.call_soon_threadsafe(self._start, consumer)
            except RuntimeError as error:
                # Closed in this very moment.
                consumer.group.give_up(consumer)
                self._report(error)

    def is_here(self) -> bool:
        """Whether the caller runs on this loop's thread."""
        return get_ident() == self._ident

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
        return self._cancelled(self._tasks.pop(consumer.id, []))

    def cancel_all(self, spared: list["asyncio.Task[None]"]) -> list["asyncio.Task[None]"]:
        """The same for every consumer; but for some slots, which end after what they are doing."""
        tasks = [task for tasks in self._tasks.values() for task in tasks if task not in spared]
        self._parked.clear()
        self._tasks.clear()
        return self._cancelled(tasks)

    def _cancelled(self, tasks: list["asyncio.Task[None]"]) -> list["asyncio.Task[None]"]:
        mine = SLOT.get()
        others = [task for task in tasks if task is not mine]
        for task in others:
            task.cancel()
        return others

    def _start(self, consumer: Consumer) -> None:
        self._ident = get_ident()
        parked = self._parked.get(consumer.id)
        while parked:
            future = parked.pop()
            if not future.done():
                future.set_result(None)
                return
        task = self.loop.create_task(self._slot(consumer), name=f"unibus-slot-{consumer.id}")
        self._tasks.setdefault(consumer.id, []).append(task)

    async def _slot(self, consumer: Consumer) -> None:
        group = consumer.group
        shape = consumer.shape
        left: i64 = QUANTUM
        task = asyncio.current_task()
        INSIDE.set(consumer)
        SLOT.set(task)
        self.busy += 1
        busy = True
        try:
            while not self._delivery.paused:
                message = group.next_for(consumer)
                if message is None:
                    busy = False
                    self.busy -= 1
                    self._aftermath.rested(group)
                    if consumer.cancelled:
                        return
                    await self._park(consumer)
                    busy = True
                    self.busy += 1
                    continue
                if group.has_room_waiters():
                    notify(group.take_room_waiters())
                if not self._delivery.prepare(consumer, message):
                    continue
                # Written out here and not in a coroutine of its own, which would cost as much as the queue.
                try:
                    started = consumer.handler(message) if shape == TAKES_MESSAGE else call(consumer, message)
                    result = await cast("Awaitable[object]", started)
                    if result is not None or wants_reply(message):
                        self._aftermath.answered(consumer, message, result)
                except BaseException as error:
                    self._failed(consumer, message, error)
                else:
                    group.acked(self._delivery.metrics_of(consumer, message))
                left -= 1
                if left == 0:
                    left = QUANTUM
                    await asyncio.sleep(0)
        finally:
            self._ended(consumer, task)
            if busy:
                self.busy -= 1
                group.give_up(consumer)
                # What was handed back is for another slot, or for a new one of this consumer.
                wake(group)
                self._aftermath.rested(group)

    async def _park(self, consumer: Consumer) -> None:
        future: asyncio.Future[None] = self.loop.create_future()
        self._parked.setdefault(consumer.id, []).append(future)
        await future

    def _failed(self, consumer: Consumer, message: Message, error: BaseException) -> None:
        """Settle a handler that raised; what ends the slot is raised again."""
        if isinstance(error, GeneratorExit):
            # Nobody ended it: its loop was closed under it, and there is nothing left to run on.
            consumer.group.queue.restore(message, message.priority, message.sequence)
            raise error
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            # We are being cancelled, it is not the handler's own doing: the message goes back, it is not lost.
            consumer.group.queue.restore(message, message.priority, message.sequence)
            raise error
        self._aftermath.failed(consumer, message, error)
        if not isinstance(error, (Exception, asyncio.CancelledError)):
            if not self._owned:
                raise error
            self._report(error)

    def _ended(self, consumer: Consumer, task: "asyncio.Task[None] | None") -> None:
        tasks = self._tasks.get(consumer.id)
        if tasks is not None and task in tasks:
            tasks.remove(task)
