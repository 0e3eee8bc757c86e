# mypyc: compiled
"""A received message: locked for its receiver until it is settled.

    async with message:      complete at the end, abandon if the block raises; the lock is renewed meanwhile
    await message.complete() | abandon() | defer() | dead_letter() | release() | renew_lock()

    received ──complete──▶ removed          ──abandon──▶ ready again, delivery count + 1 (or dead-lettered)
             ──defer─────▶ deferred         ──release──▶ ready again, delivery count unchanged
             ──dead_letter──▶ dead-letter queue

Settling is fenced by the lock token: under a lost lock it raises LockLost and changes nothing. A block that is
cancelled releases its message: the handler has neither finished nor failed.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar
from uuid import UUID

from mypy_extensions import mypyc_attr

from unibus.bus.bodies.conversion import body_as
from unibus.bus.error_texts import error_text
from unibus.bus.other_api import ASYNC_BLOCK, SYNC_BLOCK, refuse
from unibus.bus.pubsub.loop_call import notify_loop
from unibus.bus.queues.operations import Queues
from unibus.bus.queues.transactions import current
from unibus.core.envelope.fields import seconds_ns
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import HeaderValue
from unibus.core.flow.deadletter import DESCRIPTION_CHARS_MAX, capped
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import ABANDON, COMPLETE, DEAD_LETTER, DEFER, RELEASE, Command, Renew, Settle
from unibus.core.lifecycle.envelope import message_of, overrides_of
from unibus.display import NAME_CHARS_MAX, described, quoted, shortened
from unibus.errors import BusError, LockLost, StoreFailed, UsageError
from unibus.safe_log import SafeLogger
from unibus.stores.seam.pending import Pending

log = SafeLogger("unibus")
T = TypeVar("T")


# Tracing has interpreted subclasses of these three classes (otel/).
@mypyc_attr(allow_interpreted_subclasses=True)
class DeliveredMessage:
    """The common part of Received and SyncReceived: the envelope, and the commands that settle it."""

    def __init__(self, queues: Queues, claimed: Claimed) -> None:
        self._queues = queues
        self._claimed = claimed
        self.message: Message = message_of(claimed)
        # Without a lock it was removed by the receive: there is nothing to settle.
        self.settled = claimed.until_ns == 0
        self._inside = False  # Inside its `with` block, where the lock is renewed.
        self._when_lost: Callable[[LockLost], None] | None = None
        self._lost: LockLost | None = None
        self._task: asyncio.Task[object] | None = None

    # The envelope

    @property
    def body(self) -> object:
        return self.message.body

    def body_as(self, wanted: type[T]) -> T:
        """The body as a dataclass, an attrs class, a pydantic model, a msgspec struct, or a type made of these.

        Raises PayloadMismatch, which names the field, if the body does not fit; the message stays locked.
        """
        return body_as(self.body, wanted)

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def entity(self) -> str:
        """The path of the queue or subscription that it was received from."""
        return self._claimed.entity

    @property
    def sequence(self) -> int:
        return int(self._claimed.sequence)

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included."""
        return int(self._claimed.delivery_count)

    @property
    def headers(self) -> Mapping[str, HeaderValue]:
        return self.message.headers

    @property
    def priority(self) -> int:
        return int(self.message.priority)

    @property
    def session_id(self) -> str | None:
        return self.message.session_id

    @property
    def correlation_id(self) -> str | None:
        return self.message.correlation_id

    @property
    def content_type(self) -> str | None:
        return self.message.content_type

    @property
    def subject(self) -> str | None:
        return self.message.subject

    @property
    def reply_to(self) -> str | None:
        return self.message.reply_to

    @property
    def enqueued_at(self) -> datetime:
        return datetime.fromtimestamp(float(self._claimed.enqueued_ns) / 1e9, UTC)

    @property
    def lock_token(self) -> UUID | None:
        return None if self._claimed.until_ns == 0 else UUID(bytes=self._claimed.token)

    @property
    def locked_until(self) -> datetime | None:
        """When the lock expires; None for a message that was removed when it was received."""
        until_ns = self._claimed.until_ns
        return None if until_ns == 0 else datetime.fromtimestamp(float(until_ns) / 1e9, UTC)

    def __repr__(self) -> str:
        return described(self, partial(_description, self))

    # The commands

    def _command(self, verb: int) -> Settle:
        if self._claimed.until_ns == 0:
            raise UsageError(
                f"message {self.id} cannot be settled: it was removed when it was received",
                "receive with mode='peek_lock' to settle messages",
            )
        return Settle(verb, self._claimed.entity, self._claimed.sequence, self._claimed.token)

    def _settle(self, command: Settle, properties: Mapping[str, HeaderValue] | None) -> Pending[None]:
        if properties:
            command.overlay = overrides_of(dict(properties))
        # Marked only after `submit` has accepted it: after LockLost, or on bad input, the message stays unsettled and
        # the end of its block can still act on it.
        pending = self._queues.submit(command)
        self._mark_settled()
        return pending if pending.is_accepted else pending.tap(partial(_answered, [self]))

    def _mark_settled(self) -> None:
        """Mark it settled. Inside a transaction the settlement takes effect with the commit: the lock is renewed until
        then, and a rollback makes the message unsettled again."""
        self.settled = True
        transaction = current(self._queues.store) if self._queues.exchange.transactions else None
        if transaction is None:
            self._queues.renewals.stop(self._claimed)
        else:
            # Also outside of a `with` block: without a renewal the lock could expire before the commit, which would
            # fail then.
            self._queues.renewals.start(self._claimed, None)
            transaction.afterwards(lambda: self._queues.renewals.stop(self._claimed))
            transaction.otherwise(self._reopened)

    def _reopened(self) -> None:
        """The transaction was rolled back, or the store refused: the message is not settled."""
        self.settled = False
        self._queues.renewals.stop(self._claimed)
        # With the callback again: `_mark_settled` had replaced it, since a settled block must not be cancelled.
        if self._inside:
            self._queues.renewals.start(self._claimed, self._when_lost)

    def _settle_as(self, verb: int) -> Pending[None]:
        return self._settle(self._command(verb), None)

    def _defer(self, properties: Mapping[str, HeaderValue] | None) -> Pending[None]:
        return self._settle(self._command(DEFER), properties)


def _abandon(
    message: DeliveredMessage, delay: float | None, properties: Mapping[str, HeaderValue] | None
) -> Pending[None]:
    command = message._command(ABANDON)
    command.delay_ns = 0 if delay is None else seconds_ns("delay", delay)
    return message._settle(command, properties)


def _dead_letter(
    message: DeliveredMessage, reason: str, description: str, properties: Mapping[str, HeaderValue] | None
) -> Pending[None]:
    command = message._command(DEAD_LETTER)
    command.reason = reason
    command.description = description
    return message._settle(command, properties)


def _renew(message: DeliveredMessage) -> Pending[None]:
    # Only for its check: raises UsageError for a message without a lock.
    message._command(RELEASE)
    return message._queues.renew(message._claimed, Renew(message.entity, message.sequence, message._claimed.token))


def _description(message: DeliveredMessage) -> str:
    state = "settled" if message.settled else "locked"
    return f"{shortened(message.id, NAME_CHARS_MAX)} of {quoted(message.entity, 40)} #{message.sequence}, {state}"


@mypyc_attr(allow_interpreted_subclasses=True)
class Received(DeliveredMessage):
    """A received message of MessageBus. Await a settlement to wait until it is durable; LockLost is raised at once."""

    def complete(self) -> Pending[None]:
        """Remove the message: it was handled. `await message.complete()` returns when that is durable."""
        return self._settle_as(COMPLETE)

    def abandon(self, delay: float | None = None, properties: Mapping[str, HeaderValue] | None = None) -> Pending[None]:
        """Make it ready again at its position, at once or after `delay` seconds, with its delivery count raised.

        After the last delivery (max_delivery_count) it is dead-lettered. `properties` override headers.
        """
        return _abandon(self, delay, properties)

    def defer(self, properties: Mapping[str, HeaderValue] | None = None) -> Pending[None]:
        """Defer it: only `receive_deferred([message.sequence])` delivers it again."""
        return self._defer(properties)

    def dead_letter(
        self, reason: str = "", description: str = "", properties: Mapping[str, HeaderValue] | None = None
    ) -> Pending[None]:
        """Move it to the dead-letter queue, with the reason and a description."""
        return _dead_letter(self, reason, description, properties)

    def release(self) -> Pending[None]:
        """Make it ready again at its position without counting this delivery."""
        return self._settle_as(RELEASE)

    def renew_lock(self) -> Pending[None]:
        """Extend the lock by its full duration from now. Not needed inside `async with message`."""
        return _renew(self)

    async def __aenter__(self) -> "Received":
        self._task = asyncio.current_task()
        self._inside = True
        self._when_lost = self._on_lost
        self._queues.renewals.start(self._claimed, self._on_lost)
        return self

    def _on_lost(self, error: LockLost) -> None:
        # Called by the timers, or by the thread that brings the store's answer: a task is cancelled on its own loop.
        assert self._task is not None
        notify_loop(self._task.get_loop(), partial(self._cancel, error))

    def _cancel(self, error: LockLost) -> None:
        """On the task's loop: cancel the block. Another receiver may have the message by now."""
        # The block may have ended, or settled its message, while this call waited in the loop's queue.
        if self._inside and not self.settled and self._task is not None:
            self._lost = error
            self._task.cancel(msg=str(error))

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._inside = False  # From here on a lost lock must not cancel the task: the block is over.
        # The cancellation came from us, not from the caller. It becomes LockLost, and `uncancel` takes it back:
        # otherwise an asyncio.timeout or TaskGroup outside would take it for its own.
        if self._lost is not None:
            self._queues.renewals.stop(self._claimed)
            if self._task is not None:
                self._task.uncancel()
            self.settled = True
            raise self._lost from error
        if self.settled:
            return
        self._queues.renewals.stop(self._claimed)
        # From here on no renewal: settle while the rest of the lock lasts. If the process is killed now, the lock
        # expires and the message is redelivered (at-least-once).
        if error is None:
            await self.complete()
            return
        try:
            if isinstance(error, Exception):
                await self.abandon(properties=failure(error))
            else:
                # Cancelled, or the program ends: the work has neither finished nor failed. Shielded, because the
                # cancellation must not interrupt the release.
                await asyncio.shield(_awaited(self.release()))
        except BusError as not_settled:
            # Do not raise: the error of the block is the important one.
            log.warning("%r was not released, it is redelivered when its lock expires: %s", self, not_settled)


async def _awaited(pending: Pending[None]) -> None:
    await pending


def failure(error: BaseException) -> dict[str, HeaderValue]:
    # Bounded: it is stored with the message at every failed delivery.
    return {"LastError": capped(f"{type(error).__name__}: {error_text(error)}", DESCRIPTION_CHARS_MAX)}


@mypyc_attr(allow_interpreted_subclasses=True)
class SyncReceived(DeliveredMessage):
    """A received message of SyncMessageBus: each call returns when it is durable, and raises LockLost."""

    def complete(self) -> None:
        """Remove the message: it was handled."""
        self._settle_as(COMPLETE).wait()

    def abandon(self, delay: float | None = None, properties: Mapping[str, HeaderValue] | None = None) -> None:
        """Make it ready again at its position, at once or after `delay` seconds, with its delivery count raised.

        After the last delivery (max_delivery_count) it is dead-lettered. `properties` override headers.
        """
        _abandon(self, delay, properties).wait()

    def defer(self, properties: Mapping[str, HeaderValue] | None = None) -> None:
        """Defer it: only `receive_deferred([message.sequence])` delivers it again."""
        self._defer(properties).wait()

    def dead_letter(
        self, reason: str = "", description: str = "", properties: Mapping[str, HeaderValue] | None = None
    ) -> None:
        """Move it to the dead-letter queue, with the reason and a description."""
        _dead_letter(self, reason, description, properties).wait()

    def release(self) -> None:
        """Make it ready again at its position without counting this delivery."""
        self._settle_as(RELEASE).wait()

    def renew_lock(self) -> None:
        """Extend the lock by its full duration from now. Not needed inside `with message`."""
        _renew(self).wait()

    def __enter__(self) -> "SyncReceived":
        # Without a callback: no thread can be cancelled. Its settlement raises LockLost.
        self._inside = True
        self._queues.renewals.start(self._claimed, None)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._inside = False
        if self.settled:
            return
        self._queues.renewals.stop(self._claimed)
        # A thread cannot be cancelled for a lost lock, so the loss is found here: complete() raises LockLost.
        if error is None:
            self.complete()
            return
        try:
            if isinstance(error, Exception):
                self.abandon(properties=failure(error))
            else:
                self.release()
        except BusError as not_settled:
            # Do not raise: the error of the block is the important one.
            log.warning("%r was not released, it is redelivered when its lock expires: %s", self, not_settled)


refuse(
    Received,
    SYNC_BLOCK,
    "this message was received by the async bus: `with` cannot settle it",
    "write `async with message:`",
)
refuse(
    SyncReceived,
    ASYNC_BLOCK,
    "this message was received by unibus.sync.MessageBus: `async with` cannot settle it",
    "write `with message:`",
)


def complete_many(queues: Queues, messages: Iterable[DeliveredMessage]) -> Pending[None]:
    """Complete all messages in one batch; LockLost completes none."""
    given = list(messages)
    commands: list[Command] = [message._command(COMPLETE) for message in given]
    # All commands are built, and so checked, before the first message is marked.
    pending = queues.complete_many(commands, [message.message for message in given])
    for message in given:
        message._mark_settled()
    return pending if pending.is_accepted else pending.tap(partial(_answered, given))


def _answered(messages: list[DeliveredMessage], settlement: Pending[None]) -> None:
    """The answer of a settlement that the store had not decided at once: a refused one has settled nothing."""
    error = settlement.error
    # After StoreFailed the outcome is unknown: the settlement may be on disk, so the message does not count as
    # unsettled.
    if error is not None and not isinstance(error, StoreFailed):
        for message in messages:
            message._reopened()
