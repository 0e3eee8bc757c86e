"""The workers of a bus whose messages are in a MessageBackend.

Delivery is at-least-once: a message is acknowledged only after its handler returned, or after it is stored elsewhere
(requeued, or in the dead-letter topic). A worker that is cancelled inside of a handler requeues its message. Only
cancellation or the end of the program ends a worker: an exception of a handler is a failed delivery, and an error of
the backend is logged, counted and retried (backend_settling.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Final, cast

from unibus.bus.compat.backend_settling import BackendCounts, BackendSettling, ends_program, is_cancelled
from unibus.bus.compat.backends import MessageBackend
from unibus.bus.dead_letter_copy import dead_letter
from unibus.bus.execution.event_loops import is_closed_from_outside
from unibus.bus.execution.failure_log import FailureLog
from unibus.bus.execution.handlers import plan_for
from unibus.bus.execution.outcomes import failed_delivery
from unibus.bus.pubsub.delivery import call
from unibus.bus.pubsub.group import Consumer, Group
from unibus.bus.pubsub.log_feedback import LogFeedback
from unibus.bus.settings import SubscribeOptions
from unibus.bus.subscriptions.subscriptions import next_number
from unibus.clock import Clock
from unibus.core.envelope.message import Message
from unibus.core.envelope.views import BusMessage
from unibus.core.flow.deadletter import (
    MAX_DELIVERY_COUNT_EXCEEDED,
    PAYLOAD_MISMATCH,
    Verdict,
    after_failure,
    is_sub_queue,
    sub_queue,
)
from unibus.core.flow.retry import RetryPolicy
from unibus.core.topics.pattern import EXACT
from unibus.errors import BusError, ConfigInvalid, LoopMismatch, PayloadMismatch
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")

READ_AGAIN_S: Final = 1.0
"""The pause of a worker after `get` of the backend failed."""


Work = Callable[[Consumer, Message], Awaitable[None]]
"""Calls a handler: on the event loop, or in a thread."""


class BackendSubscription:
    """The handle of one subscription. It may be awaited, which only returns it."""

    def __init__(
        self, topic: str, number: int, tasks: "list[asyncio.Task[None]]", counts: BackendCounts | None = None
    ) -> None:
        self.id = number
        self.channel = topic
        self._tasks = tasks
        self._counts = counts or BackendCounts()

    def __repr__(self) -> str:
        state = "active" if self.active else "cancelled"
        return f"<BackendSubscription {self.id} on {self.channel!r:.60}, {state}>"

    @property
    def errors(self) -> int:
        """Failed deliveries: the handler raised, or could not be called with the body."""
        return self._counts.errors

    @property
    def backend_errors(self) -> int:
        """Calls to the backend that failed. Each was retried."""
        return self._counts.backend_errors

    @property
    def active(self) -> bool:
        return any(not task.done() for task in self._tasks)

    def cancel(self) -> "asyncio.Future[list[object]]":
        """Cancel the workers. Await the result to wait for their end."""
        for task in self._tasks:
            # Once: a second cancellation would interrupt the worker while it requeues its message.
            if not task.cancelling():
                task.cancel()
        return cast("asyncio.Future[list[object]]", asyncio.gather(*self._tasks, return_exceptions=True))

    def __await__(self) -> Generator[object, None, "BackendSubscription"]:
        yield from ()
        return self


async def _result_of(closing: "asyncio.Task[BusError | None]") -> BusError | None:
    return await asyncio.shield(closing)


class BackendWorkers:
    """All workers of one bus on its backend."""

    def __init__(
        self, backend: MessageBackend, clock: Clock, chance: Callable[[], float], feedback: LogFeedback | None = None
    ) -> None:
        self.backend = backend
        self._clock = clock
        self._chance = chance
        self._settling = BackendSettling(backend)
        # The same log lines, with the same limit of their number, as for handlers of a bus without a backend.
        self._failures = FailureLog(clock.monotonic_ns, feedback)
        self._subscriptions: dict[int, BackendSubscription] = {}
        # Of unsubscribed workers that may still requeue a message: the backend is closed after them.
        self._ending: set[asyncio.Future[list[object]]] = set()
        self._closing: asyncio.Task[BusError | None] | None = None

    def subscribe(
        self,
        topic: object,
        handler: Callable[..., object],
        retry: RetryPolicy,
        concurrency: int,
        options: SubscribeOptions,
    ) -> BackendSubscription:
        # An option that a backend cannot honour is an error and not ignored: a filter that is not applied would deliver
        # messages that the handler must not get.
        refused = sorted(set(options) - {"group", "retry_backoff", "retry_jitter"})
        if options.get("match") == EXACT:  # Every subscription here is exact, so this option changes nothing.
            refused.remove("match")
        if not isinstance(topic, str) or refused:
            what = f"the option {refused[0]!r}" if refused else "a pattern"
            raise ConfigInvalid(
                f"subscribe on a bus with a backend does not support {what}",
                "leave it out, or use a bus without a backend",
            )
        plan = plan_for(handler)
        number = next_number()
        # A group of its own, for names in logs and for the call of the handler. Its queue is not used: the backend has
        # the messages.
        consumer = Consumer(number, Group(number, options.get("group") or plan.name, 0), handler, plan.shape)
        consumer.convert = plan.convert
        consumer.retry = retry
        consumer.name = plan.name
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise LoopMismatch(
                "subscribe on a bus with a backend needs a running event loop", "call it inside of async def"
            ) from None
        work = self._work_async if plan.is_async else self._work_in_thread
        counts = BackendCounts()
        # One worker for each slot: a worker has at most one message in-flight, so that a cancelled one has to requeue
        # one message.
        tasks = [loop.create_task(self._worker(topic, consumer, work, counts)) for _ in range(concurrency)]
        self._subscriptions[number] = BackendSubscription(topic, number, tasks, counts)
        return self._subscriptions[number]

    def unsubscribe(self, wanted: object) -> bool:
        number = wanted.id if isinstance(wanted, BackendSubscription) else wanted
        found = [each for each in self._subscriptions.values() if number in (each.id, each.channel)]
        for each in found:
            del self._subscriptions[each.id]
            ending = each.cancel()
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        return bool(found)

    async def close(self) -> BusError | None:
        """Cancel the workers, then close the backend; gives the error of the backend, if any.

        One task does it for all callers. If a caller is cancelled, the task continues: a worker that is cancelled a
        second time could not requeue its message.
        """
        # A task of a closed loop never ends, and a cancelled one has not closed the backend: then the next close begins
        # again.
        closing = self._closing
        if closing is None or closing.cancelled() or closing.get_loop().is_closed():
            closing = self._closing = asyncio.get_running_loop().create_task(self._close(), name="unibus-close")
        loop = closing.get_loop()
        if loop is asyncio.get_running_loop():
            return await asyncio.shield(closing)
        # Called on another loop than that of the workers. A future may only be awaited on its own loop, so the wait is
        # sent there; the shield in it keeps the task from the cancellation of this caller.
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_result_of(closing), loop))

    async def _close(self) -> BusError | None:
        ending = [subscription.cancel() for subscription in self._subscriptions.values()]
        # The workers before the backend: a cancelled worker still has to requeue its message there.
        await asyncio.gather(*ending, *self._ending)
        self._subscriptions.clear()
        try:
            await self.backend.close()
        # Returned and not raised: the bus has to be closed in any case, and raises it afterwards.
        except Exception as error:
            failure = BusError(f"the backend could not be closed: {error!r}", "see the cause")
            failure.__cause__ = error
            return error if isinstance(error, BusError) else failure
        return None

    async def _work_async(self, consumer: Consumer, message: Message) -> None:
        await cast(Awaitable[object], call(consumer, message))

    async def _work_in_thread(self, consumer: Consumer, message: Message) -> None:
        raised = await asyncio.to_thread(_raised_by, consumer, message)
        if raised is not None:
            raise raised

    async def _worker(self, topic: str, consumer: Consumer, work: Work, counts: BackendCounts) -> None:
        while not is_cancelled():  # A handler may have swallowed the CancelledError of its worker.
            view = await self._next(topic, counts)
            # No await between `_next` and the `try` below: a cancellation in between would lose a message that the
            # backend has delivered.
            view.message.delivery_count += 1
            try:
                is_settled = await self._handle(consumer, view, work, counts)
            except GeneratorExit:
                raise  # The loop was closed: nothing can be awaited any more.
            except BaseException as error:
                # Cancelled in the handler, or in the pause before a retry: the message is not settled yet.
                await self._settling.put_back(view, counts)
                if ends_program(error):
                    raise
                log.error("%r could not be settled and is redelivered: %r", view.message, error)
                continue
            # Cancelled here, the handled message stays unacknowledged and is redelivered: at-least-once.
            if is_settled:
                await self._settling.acknowledge(view, counts)

    async def _next(self, topic: str, counts: BackendCounts) -> BusMessage:
        while True:
            try:
                return await self.backend.get(topic)
            except BaseException as error:
                if ends_program(error):
                    raise
                # The worker must survive this: without it the subscription would look active and get no messages.
                counts.backend_errors += 1
                log.error("the backend cannot read topic %r, retrying: %r", topic, error)
                await asyncio.sleep(READ_AGAIN_S)

    async def _handle(self, consumer: Consumer, view: BusMessage, work: Work, counts: BackendCounts) -> bool:
        """Call the handler. False if the message must not be acknowledged: it was neither handled nor stored again."""
        task = asyncio.current_task()
        try:
            await work(consumer, view.message)
        except BaseException as error:
            # A handler may raise GeneratorExit itself; that is a failed delivery. One that comes from outside means
            # that the loop was closed, and nothing can be awaited any more.
            is_own = isinstance(error, GeneratorExit) and not is_closed_from_outside(task, error)
            if not is_own and ends_program(error):
                raise
            counts.errors += 1
            return await self._retry_or_dead_letter(consumer, view, error, counts)
        return True

    async def _retry_or_dead_letter(
        self, consumer: Consumer, view: BusMessage, error: BaseException, counts: BackendCounts
    ) -> bool:
        message = view.message
        # A body that does not fit the handler will not fit at the next attempt: dead-lettered at once.
        unfit = isinstance(error, PayloadMismatch)
        if after_failure(message.delivery_count, consumer.retry.deliveries_max, unfit) is Verdict.DEAD_LETTER:
            return await self._dead_letter(consumer, view, error, counts)
        delay_ns: int = consumer.retry.delay_ns(message.delivery_count, self._chance())
        self._failures.retried(failed_delivery(consumer, message, error), delay_ns)
        # The worker waits with its message, and takes no other: a backend has no schedule of its own. Cancelled in
        # here, it requeues the message.
        await asyncio.sleep(delay_ns / 1e9)
        return await self._settling.requeue(view, counts)

    async def _dead_letter(
        self, consumer: Consumer, view: BusMessage, error: BaseException, counts: BackendCounts
    ) -> bool:
        message, failed = view.message, failed_delivery(consumer, view.message, error)
        reason = PAYLOAD_MISMATCH if isinstance(error, PayloadMismatch) else MAX_DELIVERY_COUNT_EXCEEDED
        if is_sub_queue(message.channel):
            # A dead-letter topic has no dead-letter topic of its own: a second one would never end.
            self._failures.discarded(failed, reason)
            return True
        place = sub_queue(message.channel)
        copy = dead_letter(message, place, reason, error, failed.group, self._clock.wall_ns())
        self._failures.dead_lettered(failed, reason, place, f"bus.subscribe({place!r}, …)")
        return await self._settling.dead_letter(view, copy, counts)


def _raised_by(consumer: Consumer, message: Message) -> BaseException | None:
    """Call the handler in its thread, and return what it raises: a future refuses or changes some exceptions."""
    try:
        call(consumer, message)
    except BaseException as error:
        return error
    return None
