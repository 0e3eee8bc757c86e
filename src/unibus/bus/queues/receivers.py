"""Receiving: waiting for messages to come, for loops and for threads.

    claim ─▶ something: hand it over
      │ nothing
      ▼
    watch ─▶ claim again (it may have come in between) ─▶ wait to be woken ─▶ claim …

A session that somebody else holds is waited for in the same way. Whoever is cancelled while its messages are on their
way gives them back, uncounted. Work in a session whose lock is lost is stopped.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Protocol, TypeVar, cast

from msgspec.structs import replace

from unibus.bus.pubsub.loop_call import notify_loop
from unibus.bus.queues.lock_renewal import KeptSession
from unibus.bus.queues.operations import PEEK_LOCK, RECEIVE_AND_DELETE, Queues
from unibus.bus.queues.received import Received, SyncReceived
from unibus.core.envelope.fields import plain_text
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import (
    LEAVE_SESSION,
    RELEASE,
    RENEW_SESSION,
    SET_SESSION_STATE,
    SessionCommand,
    Settle,
)
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import BusError, EntityNotFound, LockLost, SessionLocked, SessionNotFound, UsageError
from unibus.stores.seam.pending import Pending, resolved
from unibus.stores.seam.store import ClaimRequest, SessionLock

log = logging.getLogger("unibus")
T = TypeVar("T")

BATCH_MAX = 10_000


class ReceiveWatcher(Protocol):
    """The half of a Watcher that stands around receiving. It makes what is received."""

    async def receive(self, entity: str, claiming: Awaitable[list[Claimed]]) -> list[Received]: ...

    def receive_sync(self, entity: str, claiming: Callable[[], list[Claimed]]) -> list[SyncReceived]: ...


def _watched(queues: Queues) -> ReceiveWatcher:
    return cast("ReceiveWatcher", queues.watcher)


def request_for(entity: str, count: int, mode: str, consumer: str, session: SessionLock | None = None) -> ClaimRequest:
    if not isinstance(entity, str):
        raise UsageError(f"an entity is named by text, not {type(entity).__name__}")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= BATCH_MAX:
        raise UsageError(f"receive {count!r} messages", f"a whole number from 1 to {BATCH_MAX}")
    if mode not in (PEEK_LOCK, RECEIVE_AND_DELETE):
        raise UsageError(f"unknown mode {mode!r}", f"use {PEEK_LOCK!r} or {RECEIVE_AND_DELETE!r}")
    held = None if session is None else (session.session_id, session.token)
    return ClaimRequest(entity, count, mode == PEEK_LOCK, plain_text("the consumer", consumer), held)


def claim(queues: Queues, request: ClaimRequest) -> Pending[list[Claimed]]:
    """A missing queue is made, unless the bus is strict: its first message may come from elsewhere."""
    try:
        pending = queues.store.claim(request)
    except EntityNotFound:
        make_missing(queues, request.entity)
        pending = queues.store.claim(request)
    if not request.lock:
        queues.renewals.settled(request.entity)
    return pending


def make_missing(queues: Queues, entity: str) -> None:
    if queues.strict or "/" in entity:
        raise EntityNotFound(f"there is no queue or subscription {entity!r}", "create it first")
    queues.create(QUEUE, entity, {})


def release(queues: Queues, claimed: list[Claimed]) -> None:
    """Give back what nobody has looked at."""
    locked = [each for each in claimed if each.until_ns]
    if locked:
        try:
            queues.store.apply([Settle(RELEASE, each.entity, each.sequence, each.token) for each in locked])
        except BusError:
            # Lost already, or the store has stopped: the locks end by themselves.
            return


def leave(queues: Queues, lock: SessionLock) -> None:
    """Free a session that nobody has worked in."""
    try:
        queues.store.apply([SessionCommand(LEAVE_SESSION, lock.entity, lock.session_id, lock.token)])
    except BusError:
        # As above.
        return


# For event loops


async def until_async(
    queues: Queues,
    entity: str,
    look: Callable[[], Pending[T]],
    timeout_s: float | None,
    cancellable: "Callable[[Queues, Pending[T]], Awaitable[T]] | None" = None,
    interrupted: asyncio.Event | None = None,
) -> T:
    """What `look` finds, as soon as it finds something; what it found last at the time-out.

    `cancellable` awaits an answer, and undoes what it has done when the caller is cancelled meanwhile.
    `interrupted` ends the waiting early. Cancelling would end it too, and lose what a destructive receive is being
    given in that moment.
    """
    answer = cancellable or _cancellable
    found = await answer(queues, look())
    if found or timeout_s == 0:
        return found
    loop = asyncio.get_running_loop()
    deadline_s = None if timeout_s is None else loop.time() + timeout_s
    while True:
        woken = asyncio.Event()
        stop = queues.store.watch(entity, partial(notify_loop, loop, woken.set))
        looks_again = False
        try:
            found = await answer(queues, look())
            if found:
                return found
            if interrupted is not None and interrupted.is_set():
                return found
            async with asyncio.timeout_at(deadline_s):
                await _either(woken, interrupted)
            looks_again = True
        except TimeoutError:
            return found
        finally:
            if not looks_again:  # Who goes away passes the wake-up on. Two who stay would pass it to and fro for ever.
                stop()


async def _either(woken: asyncio.Event, interrupted: asyncio.Event | None) -> None:
    if interrupted is None:
        await woken.wait()
        return
    waiting = asyncio.ensure_future(interrupted.wait())
    waiting.add_done_callback(lambda _: woken.set())
    try:
        await woken.wait()
    finally:
        waiting.cancel()


async def _cancellable(queues: Queues, pending: Pending[T]) -> T:
    try:
        return await pending
    except asyncio.CancelledError:
        value = pending.value
        if isinstance(value, list):
            release(queues, value)
        elif isinstance(value, SessionLock):
            leave(queues, value)
        raise


async def receive_batch(queues: Queues, request: ClaimRequest, timeout_s: float | None) -> list[Received]:
    claiming = until_async(queues, request.entity, lambda: claim(queues, request), timeout_s)
    if queues.watcher is not None:
        return await _watched(queues).receive(request.entity, claiming)
    return [Received(queues, each) for each in await claiming]


async def receive(queues: Queues, request: ClaimRequest, timeout_s: float | None) -> AsyncIterator[Received]:
    """One at a time, so that nobody holds more than it works on."""
    single = replace(request, count=1)
    while True:
        received = await receive_batch(queues, single, timeout_s)
        if not received:
            return
        yield received[0]


async def receive_deferred(queues: Queues, entity: str, sequences: Iterable[int]) -> list[Received]:
    return await _deferred_by(queues, _deferred(entity, sequences))


async def _deferred_by(queues: Queues, request: ClaimRequest) -> list[Received]:
    claiming = _cancellable(queues, queues.store.claim(request))
    if queues.watcher is not None:
        return await _watched(queues).receive(request.entity, claiming)
    return [Received(queues, each) for each in await claiming]


def _deferred(entity: str, sequences: Iterable[int]) -> ClaimRequest:
    wanted = tuple(sequences)
    if not wanted:
        raise UsageError("receive_deferred without a sequence", "give those that defer was called for")
    return ClaimRequest(entity, len(wanted), sequences=wanted)


async def accept_session(
    queues: Queues, entity: str, session_id: str | None, timeout_s: float | None, consumer: str
) -> "SessionReceiver":
    wanted = WantedSession(queues, entity, session_id, consumer)
    return SessionReceiver(queues, wanted.found(await until_async(queues, entity, wanted.look, timeout_s)))


class WantedSession:
    """A session that somebody wants: the one of that id, also if it is held by another one now, or the next free."""

    def __init__(self, queues: Queues, entity: str, session_id: str | None, consumer: str) -> None:
        self._queues = queues
        self._entity = entity
        self._session_id = session_id
        self._consumer = consumer

    def look(self) -> Pending[SessionLock | None]:
        try:
            return self._queues.store.accept(self._entity, self._session_id, self._consumer)
        except SessionLocked:
            return resolved(None)

    def found(self, lock: SessionLock | None) -> SessionLock:
        """What the last look found, or the error that says why it found nothing."""
        if lock is not None:
            return lock
        if self._session_id is None:
            raise SessionNotFound(f"no session of {self._entity!r} with messages is free", "try again, or name one")
        raise SessionLocked(
            f"session {self._session_id!r} of {self._entity!r} is locked by another receiver", "wait, or accept another"
        )


# For threads


def until(queues: Queues, entity: str, look: Callable[[], Pending[T]], timeout_s: float | None) -> T:
    found = look().wait()
    if found or timeout_s == 0:
        return found
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        woken = threading.Event()
        stop = queues.store.watch(entity, woken.set)
        looks_again = False
        try:
            found = look().wait()
            if found:
                return found
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if (left_s is not None and left_s <= 0) or not woken.wait(left_s):
                return found
            looks_again = True
        finally:
            if not looks_again:
                stop()


def receive_batch_sync(queues: Queues, request: ClaimRequest, timeout_s: float | None) -> list[SyncReceived]:
    if queues.watcher is not None:
        return _watched(queues).receive_sync(
            request.entity, lambda: until(queues, request.entity, lambda: claim(queues, request), timeout_s)
        )
    claimed = until(queues, request.entity, lambda: claim(queues, request), timeout_s)
    return [SyncReceived(queues, each) for each in claimed]


def receive_sync(queues: Queues, request: ClaimRequest, timeout_s: float | None) -> Iterator[SyncReceived]:
    single = replace(request, count=1)
    while received := receive_batch_sync(queues, single, timeout_s):
        yield received[0]


def receive_deferred_sync(queues: Queues, entity: str, sequences: Iterable[int]) -> list[SyncReceived]:
    return _deferred_by_sync(queues, _deferred(entity, sequences))


def _deferred_by_sync(queues: Queues, request: ClaimRequest) -> list[SyncReceived]:
    if queues.watcher is not None:
        return _watched(queues).receive_sync(request.entity, lambda: queues.store.claim(request).wait())
    return [SyncReceived(queues, each) for each in queues.store.claim(request).wait()]


def accept_session_sync(
    queues: Queues, entity: str, session_id: str | None, timeout_s: float | None, consumer: str
) -> "SyncSessionReceiver":
    wanted = WantedSession(queues, entity, session_id, consumer)
    return SyncSessionReceiver(queues, wanted.found(until(queues, entity, wanted.look, timeout_s)))


# Sessions


class HeldSession:
    """What both faces of an accepted session share. `id` is its name."""

    def __init__(self, queues: Queues, lock: SessionLock) -> None:
        self._queues = queues
        self._lock = lock
        self.id = lock.session_id
        self.entity = lock.entity
        self.closed = False
        self._kept = KeptSession(lock, lock.until_ns)

    def _leave(self) -> Pending[None]:
        self.closed = True
        self._queues.renewals.stop(self._kept)
        return self._command(LEAVE_SESSION)

    def _command(self, verb: int, state: bytes | None = None) -> Pending[None]:
        command = SessionCommand(verb, self.entity, self.id, self._lock.token)
        if state is not None and not isinstance(state, bytes):
            raise UsageError(f"a session state is bytes, not {type(state).__name__}", "encode it first")
        command.state = None if state is None else bytes(state)
        return self._queues.submit(command)

    def _request(self, count: int, mode: str) -> ClaimRequest:
        return request_for(self.entity, count, mode, "", self._lock)

    def _not_freed(self, hindrance: BusError) -> None:
        """The error of the block is the one to tell."""
        log.warning("session %r of %r was not freed, its lock ends by itself: %s", self.id, self.entity, hindrance)


class SessionReceiver(HeldSession):
    """An accepted session for async programs: `async with await bus.accept_session(…) as session`.

    The lock is renewed while the block is open. If that fails the block is cancelled, and raises SessionLockLost.
    """

    def __init__(self, queues: Queues, lock: SessionLock) -> None:
        super().__init__(queues, lock)
        self._task: asyncio.Task[object] | None = None  # The one that is inside of the block.
        self._lost: LockLost | None = None

    def receive(self, timeout: float | None = None, mode: str = PEEK_LOCK) -> AsyncIterator[Received]:
        return receive(self._queues, self._request(1, mode), timeout)

    async def receive_batch(self, count: int, timeout: float | None = None, mode: str = PEEK_LOCK) -> list[Received]:
        return await receive_batch(self._queues, self._request(count, mode), timeout)

    async def receive_deferred(self, sequences: list[int]) -> list[Received]:
        request = replace(self._request(1, PEEK_LOCK), sequences=tuple(sequences))
        return await _deferred_by(self._queues, request)

    def state(self) -> Pending[bytes | None]:
        return self._queues.store.session_state(self._lock)

    def set_state(self, state: bytes | None) -> Pending[None]:
        return self._command(SET_SESSION_STATE, state)

    def renew_lock(self) -> Pending[None]:
        return self._command(RENEW_SESSION)

    async def close(self) -> None:
        """Free the session. What was received and not settled goes back."""
        if not self.closed:
            await self._leave()

    async def __aenter__(self) -> "SessionReceiver":
        self._task = asyncio.current_task()
        self._queues.renewals.start(self._kept, partial(self._on_lost, asyncio.get_running_loop()))
        return self

    def _on_lost(self, loop: asyncio.AbstractEventLoop, error: LockLost) -> None:
        notify_loop(loop, partial(self._cancel, error))

    def _cancel(self, error: LockLost) -> None:
        """The session may be with somebody else by now: whatever is being done in it here must stop."""
        if self._task is not None and not self.closed:
            self._lost = error
            self._task.cancel(msg=str(error))

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        task, self._task = self._task, None  # News of a lost lock that comes now comes too late to stop anything.
        lost, self._lost = self._lost, None
        if lost is not None:
            self.closed = True
            self._queues.renewals.stop(self._kept)
            if task is not None:
                task.uncancel()
            raise lost from error
        try:
            await self.close()
        except BusError as hindrance:
            if error is None:
                raise
            self._not_freed(hindrance)


class SyncSessionReceiver(HeldSession):
    """The same for synchronous programs. A thread cannot be cancelled: a lock that is lost shows in the next call."""

    def receive(self, timeout: float | None = None, mode: str = PEEK_LOCK) -> Iterator[SyncReceived]:
        return receive_sync(self._queues, self._request(1, mode), timeout)

    def receive_batch(self, count: int, timeout: float | None = None, mode: str = PEEK_LOCK) -> list[SyncReceived]:
        return receive_batch_sync(self._queues, self._request(count, mode), timeout)

    def receive_deferred(self, sequences: list[int]) -> list[SyncReceived]:
        request = replace(self._request(1, PEEK_LOCK), sequences=tuple(sequences))
        return _deferred_by_sync(self._queues, request)

    def state(self) -> bytes | None:
        return self._queues.store.session_state(self._lock).wait()

    def set_state(self, state: bytes | None) -> None:
        self._command(SET_SESSION_STATE, state).wait()

    def renew_lock(self) -> None:
        self._command(RENEW_SESSION).wait()

    def close(self) -> None:
        if not self.closed:
            self._leave().wait()

    def __enter__(self) -> "SyncSessionReceiver":
        self._queues.renewals.start(self._kept, None)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self.close()
        except BusError as hindrance:
            if error is None:
                raise
            self._not_freed(hindrance)
