"""The handlers that slots call for messages of a durable subscription: they call the user's handler and settle.

    admit ──None: not now, or settled already──▶ UNANSWERED
      │ the lock
      ▼
    user's handler ──returned──▶ complete   ──raised──▶ abandon or dead-letter   ──lock lost, cancelled──▶ release

Not compiled, while the pump itself is: a compiled coroutine returns its result by raising an exception, which costs
more than all the work here (see CONTRIBUTING, "What mypyc taught us").
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from unibus.bus.execution.event_loops import ends_slot, is_closed_from_outside
from unibus.bus.execution.outcomes import UNANSWERED, refuse_coroutine
from unibus.bus.persistent.pump import SubscriptionPump
from unibus.bus.pubsub.delivery import call
from unibus.bus.pubsub.group import Consumer
from unibus.core.envelope.message import Message


def pump_handler(pump: SubscriptionPump, inner: Consumer, is_async: bool) -> Callable[..., object]:
    """Wrap the handler of `inner`, the user's own, so that its message is settled in the store."""
    return _async_handler(pump, inner) if is_async else _sync_handler(pump, inner)


def _sync_handler(pump: SubscriptionPump, inner: Consumer) -> Callable[[Message], object]:
    def handle(message: Message) -> object:
        claimed = pump.admit(message)
        if claimed is None:
            return UNANSWERED
        try:
            result = call(inner, message)
            if result is not None:
                refuse_coroutine(inner.group.name, result)
        except BaseException as error:
            # Whatever it is: a message that is not settled here would stay locked for as long as the process lives. The
            # slot gets some of them, as from a handler in memory.
            pump.failed(inner, claimed, message, error, _is_raised(error))
            if _is_raised(error):
                raise
            return UNANSWERED
        return pump.returned(claimed, message, result)

    return handle


def _async_handler(pump: SubscriptionPump, inner: Consumer) -> Callable[[Message], Awaitable[object]]:
    async def handle(message: Message) -> object:
        claimed = pump.admit(message)
        if claimed is None:
            return UNANSWERED
        task = asyncio.current_task()
        assert task is not None
        if not pump.begin(claimed, message, task):
            return UNANSWERED
        try:
            result = await cast("Awaitable[object]", call(inner, message))
            if result is not None:
                refuse_coroutine(inner.group.name, result)
        except asyncio.CancelledError as error:
            # Three causes, distinguished in this order: the handler raised it itself (a failure), the lock was lost or
            # the pump has stopped (finished here), the slot is being cancelled while the lock is held (requeued by the
            # slot).
            if not task.cancelling():
                pump.failed(inner, claimed, message, error)  # The handler itself raised CancelledError.
            elif pump.takes_back(claimed, message):
                pump.end(claimed, task)
                if task.cancelling():
                    # More than the lost lock: the slot has to end. It is cancelled where it waits next.
                    task.uncancel()
                    task.cancel()
            else:
                # As when it was claimed: in the queue the slot must not expire a locked message.
                message.expires_ns = 0
                raise  # The slot ends and requeues the message; its lock is still held.
            return UNANSWERED
        except BaseException as error:
            if is_closed_from_outside(task, error):
                # The loop was closed. As for a cancelled slot, which requeues the message; its lock is still held.
                message.expires_ns = 0
                raise
            pump.failed(inner, claimed, message, error, _is_raised(error))
            if _is_raised(error):
                raise
            return UNANSWERED
        finally:
            # Before `returned`: from here on a lost lock must not cancel the task, which will run the next message.
            pump.end(claimed, task)
        return pump.returned(claimed, message, result)

    return handle


def _is_raised(error: BaseException) -> bool:
    """Whether the slot gets the exception after the message is settled. SystemExit is a failure only: a message that is
    redelivered, also after a restart, would end the program again and again."""
    return ends_slot(error) and not issubclass(type(error), SystemExit)
