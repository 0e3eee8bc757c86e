# mypyc: compiled
"""A message that was received and is locked: what a receiver holds in its hands until it is settled.

    async with message:      leaves = complete, raises = abandon; the lock is renewed meanwhile
    await message.complete() | abandon() | defer() | dead_letter() | renew_lock()

Settling is fenced by the lock's token: a lock that was lost raises LockLost and changes nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from mypy_extensions import mypyc_attr

from unibus.bus.dead_letter_copy import error_text
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
from unibus.errors import BusError, LockLost, UsageError
from unibus.stores.seam.pending import Pending

log = logging.getLogger("unibus")


# Tracing has subclasses of these three, in plain Python.
@mypyc_attr(allow_interpreted_subclasses=True)
class DeliveredMessage:
    """What both faces of a received message share: its fields, and the commands that settle it."""

    def __init__(self, queues: Queues, claimed: Claimed) -> None:
        self._queues = queues
        self.claimed = claimed
        self.message: Message = message_of(claimed)
        self.settled = claimed.until_ns == 0
        self._inside = False  # Of its block, where its lock is kept.
        self._when_lost: Callable[[LockLost], None] | None = None
        self._lost: LockLost | None = None
        self._task: asyncio.Task[object] | None = None

    # The envelope

    @property
    def body(self) -> object:
        return self.message.body

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def entity(self) -> str:
        """Where it was received from."""
        return self.claimed.entity

    @property
    def sequence(self) -> int:
        return int(self.claimed.sequence)

    @property
    def delivery_count(self) -> int:
        return int(self.claimed.delivery_count)

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
    def enqueued_at(self) -> datetime:
        return datetime.fromtimestamp(float(self.claimed.enqueued_ns) / 1e9, UTC)

    @property
    def lock_token(self) -> UUID | None:
        return None if self.claimed.until_ns == 0 else UUID(bytes=self.claimed.token)

    @property
    def locked_until(self) -> datetime | None:
        """None for a message that was removed when it was received."""
        until_ns = self.claimed.until_ns
        return None if until_ns == 0 else datetime.fromtimestamp(float(until_ns) / 1e9, UTC)

    def __repr__(self) -> str:
        state = "settled" if self.settled else "locked"
        return f"<{type(self).__name__} {self.id} of {self.entity!r} #{self.sequence}, {state}>"

    # The commands

    def command(self, verb: int) -> Settle:
        if self.claimed.until_ns == 0:
            raise UsageError("this message was removed when it was received", "receive with a lock to settle it")
        return Settle(verb, self.claimed.entity, self.claimed.sequence, self.claimed.token)

    def _settle(self, command: Settle, properties: Mapping[str, HeaderValue] | None) -> Pending[None]:
        if properties:
            command.overlay = overrides_of(dict(properties))
        pending = self._queues.submit(command)
        self.mark_settled()
        return pending

    def mark_settled(self) -> None:
        """It is settled; inside of a transaction only once that is committed, and its lock is kept until then."""
        self.settled = True
        transaction = current(self._queues.store) if self._queues.exchange.transactions else None
        if transaction is None:
            self._queues.renewals.stop(self.claimed)
        else:
            self._queues.renewals.start(self.claimed, None)
            transaction.afterwards(lambda: self._queues.renewals.stop(self.claimed))
            transaction.otherwise(self._reopened)

    def _reopened(self) -> None:
        """The transaction took the settlement back."""
        self.settled = False
        self._queues.renewals.stop(self.claimed)
        if self._inside:
            self._queues.renewals.start(self.claimed, self._when_lost)

    def _complete(self) -> Pending[None]:
        return self._settle(self.command(COMPLETE), None)

    def _abandon(self, delay: float | None, properties: Mapping[str, HeaderValue] | None) -> Pending[None]:
        command = self.command(ABANDON)
        command.delay_ns = 0 if delay is None else seconds_ns("delay", delay)
        return self._settle(command, properties)

    def _defer(self, properties: Mapping[str, HeaderValue] | None) -> Pending[None]:
        return self._settle(self.command(DEFER), properties)

    def _dead_letter(
        self, reason: str, description: str, properties: Mapping[str, HeaderValue] | None
    ) -> Pending[None]:
        command = self.command(DEAD_LETTER)
        command.reason = reason
        command.description = description
        return self._settle(command, properties)

    def _release(self) -> Pending[None]:
        return self._settle(self.command(RELEASE), None)

    def _renew(self) -> Pending[None]:
        self.command(RELEASE)
        return self._queues.renew(self.claimed, Renew(self.entity, self.sequence, self.claimed.token))


@mypyc_attr(allow_interpreted_subclasses=True)
class Received(DeliveredMessage):
    """A received message for async programs."""

    def complete(self) -> Pending[None]:
        """Done: it will not be delivered again. Awaiting waits until that is durable."""
        return self._complete()

    def abandon(self, delay: float | None = None, properties: Mapping[str, HeaderValue] | None = None) -> Pending[None]:
        """Give it back to its place, at once or after a delay; to the dead letters if it was the last delivery."""
        return self._abandon(delay, properties)

    def defer(self, properties: Mapping[str, HeaderValue] | None = None) -> Pending[None]:
        """Put it aside. Only `receive_deferred` with its sequence gets it again."""
        return self._defer(properties)

    def dead_letter(
        self, reason: str = "", description: str = "", properties: Mapping[str, HeaderValue] | None = None
    ) -> Pending[None]:
        return self._dead_letter(reason, description, properties)

    def release(self) -> Pending[None]:
        """Give it back as if it had never been delivered."""
        return self._release()

    def renew_lock(self) -> Pending[None]:
        return self._renew()

    async def __aenter__(self) -> "Received":
        self._task = asyncio.current_task()
        self._inside = True
        self._when_lost = self._on_lost
        self._queues.renewals.start(self.claimed, self._on_lost)
        return self

    def _on_lost(self, error: LockLost) -> None:
        assert self._task is not None
        notify_loop(self._task.get_loop(), partial(self._cancel, error))

    def _cancel(self, error: LockLost) -> None:
        """The message may be with somebody else by now: whatever is being done with it here must stop."""
        if self._inside and not self.settled and self._task is not None:
            self._lost = error
            self._task.cancel(msg=str(error))

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._inside = False  # News of a lost lock that comes now comes too late to stop anything.
        if self._lost is not None:
            self._queues.renewals.stop(self.claimed)
            if self._task is not None:
                self._task.uncancel()
            self.settled = True
            raise self._lost from error
        if self.settled:
            return
        self._queues.renewals.stop(self.claimed)
        if error is None:
            await self.complete()
            return
        try:
            if isinstance(error, Exception):
                await self.abandon(properties=failure(error))
            else:
                # Cancelled, or the program ends: nobody has decided about the message.
                await asyncio.shield(_awaited(self.release()))
        except BusError as hindrance:
            log.warning("%r was not given back, its lock ends by itself: %s", self, hindrance)


async def _awaited(pending: Pending[None]) -> None:
    await pending


def failure(error: BaseException) -> dict[str, HeaderValue]:
    return {"LastError": capped(f"{type(error).__name__}: {error_text(error)}", DESCRIPTION_CHARS_MAX)}


@mypyc_attr(allow_interpreted_subclasses=True)
class SyncReceived(DeliveredMessage):
    """A received message for synchronous programs: each call returns when it is durable."""

    def complete(self) -> None:
        self._complete().wait()

    def abandon(self, delay: float | None = None, properties: Mapping[str, HeaderValue] | None = None) -> None:
        self._abandon(delay, properties).wait()

    def defer(self, properties: Mapping[str, HeaderValue] | None = None) -> None:
        self._defer(properties).wait()

    def dead_letter(
        self, reason: str = "", description: str = "", properties: Mapping[str, HeaderValue] | None = None
    ) -> None:
        self._dead_letter(reason, description, properties).wait()

    def release(self) -> None:
        self._release().wait()

    def renew_lock(self) -> None:
        self._renew().wait()

    def __enter__(self) -> "SyncReceived":
        self._inside = True
        self._queues.renewals.start(self.claimed, None)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._inside = False
        if self.settled:
            return
        self._queues.renewals.stop(self.claimed)
        if error is None:
            self.complete()
            return
        try:
            if isinstance(error, Exception):
                self.abandon(properties=failure(error))
            else:
                self.release()
        except BusError as hindrance:
            # The error of the block is the one to tell.
            log.warning("%r was not given back, its lock ends by itself: %s", self, hindrance)


def complete_many(queues: Queues, messages: Iterable[DeliveredMessage]) -> Pending[None]:
    """All of them in one batch, or LockLost and none."""
    given = list(messages)
    commands: list[Command] = [message.command(COMPLETE) for message in given]
    pending = queues.complete_many(commands, [message.message for message in given])
    for message in given:
        message.mark_settled()
    return pending
