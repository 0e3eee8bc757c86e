"""Receiving: waits for messages and for sessions, for tasks and for threads.

    claim ──messages──▶ return them
      │ none
      ▼
    watch ──▶ claim again ──none──▶ wait for the wake-up or the timeout ──▶ watch …

The second claim comes after the watch is registered: a message that arrives between the first claim and the watch would
otherwise wake no receiver. A session that another receiver has locked is waited for in the same way.

Cancellation: a task that is cancelled while the store writes its claim releases the messages, so their delivery count
does not change. Work in a session is cancelled when its lock is lost.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Protocol, TypeVar, cast

from msgspec.structs import replace

from unibus.bus.other_api import ASYNC_BLOCK, SYNC_BLOCK, refuse
from unibus.bus.pubsub.loop_call import notify_loop
from unibus.bus.queues.iterations import ReceivedMessages, SyncReceivedMessages
from unibus.bus.queues.lock_renewal import KeptSession, renewal_of
from unibus.bus.queues.operations import PEEK_LOCK, RECEIVE_AND_DELETE, Queues, notify_settled
from unibus.bus.queues.received import Received, SyncReceived
from unibus.core.envelope.fields import plain_text
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import (
    LEAVE_SESSION,
    RELEASE,
    SET_SESSION_STATE,
    SessionCommand,
    Settle,
)
from unibus.core.lifecycle.missing import CREATE
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.display import described, quoted
from unibus.errors import BusError, EntityNotFound, LockLost, SessionLocked, SessionNotFound, UsageError
from unibus.safe_log import SafeLogger
from unibus.stores.seam.pending import Pending, resolved
from unibus.stores.seam.store import ClaimRequest, SessionLock

log = SafeLogger("unibus")
T = TypeVar("T")

BATCH_MAX = 10_000


class ReceiveWatcher(Protocol):
    """The part of an Interceptor that wraps receiving; it makes the received objects itself."""

    async def receive(self, entity: str, claiming: Awaitable[list[Claimed]]) -> list[Received]: ...

    def receive_sync(self, entity: str, claiming: Callable[[], list[Claimed]]) -> list[SyncReceived]: ...


def _watched(queues: Queues) -> ReceiveWatcher:
    return cast("ReceiveWatcher", queues.watcher)


def request_for(entity: str, count: int, mode: str, consumer: str, session: SessionLock | None = None) -> ClaimRequest:
    """The checked request for a claim; raises UsageError."""
    if not isinstance(entity, str):
        raise UsageError(f"an entity name must be a str, not {type(entity).__name__}")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= BATCH_MAX:
        raise UsageError(f"count must be a whole number from 1 to {BATCH_MAX}, got {count!r}")
    if mode not in (PEEK_LOCK, RECEIVE_AND_DELETE):
        raise UsageError(f"unknown receive mode {mode!r}", f"use {PEEK_LOCK!r} or {RECEIVE_AND_DELETE!r}")
    held = None if session is None else (session.session_id, session.token)
    return ClaimRequest(entity, count, mode == PEEK_LOCK, plain_text("the consumer", consumer), held)


def claim(queues: Queues, request: ClaimRequest) -> Pending[list[Claimed]]:
    """Claim messages. Creates a missing queue, unless the bus is strict: its first message may be sent later."""
    try:
        # Not looked up before each claim: the common case is an existing entity, and a check before the claim could be
        # outdated by the time of the claim.
        pending = queues.store.claim(request)
        if not pending.is_accepted:
            pending = pending.recover(lambda error: _claim_missing(queues, request, error))
    except EntityNotFound as missing:
        pending = _claim_missing(queues, request, missing)
    # Removed when received, so no settlement will follow that could notify blocked publishers.
    return pending if request.lock else notify_settled(queues, request.entity, pending)


def _claim_missing(queues: Queues, request: ClaimRequest, error: BaseException) -> Pending[list[Claimed]]:
    """Claim from the queue that was missing, once it is created. Any other error is raised again."""
    if not isinstance(error, EntityNotFound):
        raise error
    make_missing(queues, request.entity, error)  # Not waited for: a store decides the calls of a caller in their order.
    return queues.store.claim(request)


def make_missing(queues: Queues, entity: str, missing: EntityNotFound) -> None:
    """Create the queue, or raise. The hint of the store's error is kept if it names what was probably meant."""
    # A name with a slash is the path of a subscription or of a dead-letter queue: those are never created by a receive.
    if queues.strict or "/" in entity:
        hint = "create it first: create_queue or create_subscription" if missing.hint == CREATE else missing.hint
        raise EntityNotFound(f"queue or subscription {entity!r} does not exist", hint)
    queues.create(QUEUE, entity, {})
    queues.misspelt.created(entity)


def release(queues: Queues, claimed: list[Claimed]) -> None:
    """Release claimed messages that no receiver has seen."""
    locked = [each for each in claimed if each.until_ns]
    if locked:
        # Not waited for: the caller is being cancelled. If the process is killed first, the locks expire.
        try:
            released = queues.store.apply([Settle(RELEASE, each.entity, each.sequence, each.token) for each in locked])
            released.on_done(_ignore)
        except BusError:
            # The locks are lost already, or the store has failed: the messages are redelivered when the locks expire.
            return


def leave(queues: Queues, lock: SessionLock) -> None:
    """Release the lock of a session that no receiver got."""
    try:
        queues.store.apply([SessionCommand(LEAVE_SESSION, lock.entity, lock.session_id, lock.token)]).on_done(_ignore)
    except BusError:
        return  # As above: the lock expires.


def _ignore(pending: Pending[list[object]]) -> None:
    """Nothing to do: after an error the lock expires."""


# For tasks


async def until_async(
    queues: Queues,
    entity: str,
    look: Callable[[], Pending[T]],
    timeout_s: float | None,
    cancellable: "Callable[[Queues, Pending[T]], Awaitable[T]] | None" = None,
    interrupted: asyncio.Event | None = None,
) -> T:
    """Call `look` until it finds something, and return that; at the timeout return its last, empty result.

    `cancellable` awaits an answer, and undoes it if the caller is cancelled meanwhile.
    `interrupted` ends the wait early, as the timeout does. A cancellation would end it, too, but it would lose the
    messages that a destructive receive is just getting.
    """
    answer = cancellable or _cancellable
    # First without a watch: most receives find a message at once, and a registration costs more than a claim in vain.
    found = await answer(queues, look())
    if found or timeout_s == 0:
        return found
    loop = asyncio.get_running_loop()
    deadline_s = None if timeout_s is None else loop.time() + timeout_s
    while True:
        # A new event and a new watch for each round: a store calls a watch once.
        woken = asyncio.Event()
        stop = queues.store.watch(entity, partial(notify_loop, loop, woken.set))
        looks_again = False
        try:
            found = await answer(queues, look())
            if found:
                return found
            # After the claim and not before: what has arrived already is still returned.
            if interrupted is not None and interrupted.is_set():
                return found
            async with asyncio.timeout_at(deadline_s):
                await _either(woken, interrupted)
            looks_again = True
        except TimeoutError:
            return found
        finally:
            # `stop` passes a consumed wake-up on to the next receiver. That is right for a receiver that returns. One
            # that claims again must not pass it on: two of them would wake each other for ever.
            if not looks_again:
                stop()


async def _either(woken: asyncio.Event, interrupted: asyncio.Event | None) -> None:
    """Wait until one of the events is set."""
    if interrupted is None:
        await woken.wait()
        return
    # `interrupted` is shared by many receivers, so it cannot be the event of this one: forward it.
    waiting = asyncio.ensure_future(interrupted.wait())
    waiting.add_done_callback(lambda _: woken.set())
    try:
        await woken.wait()
    finally:
        waiting.cancel()


async def _cancellable(queues: Queues, pending: Pending[T]) -> T:
    """Await the answer; a cancelled caller releases the claimed messages or the session."""
    try:
        return await pending
    except asyncio.CancelledError:
        # An embedded store has decided the claim, so the messages are locked in memory already, although the write is
        # not finished: the release is written after the claim, in the same order. With another store what was claimed
        # is known with the answer. Messages of a destructive receive (no lock) cannot be put back: they are lost with
        # the cancelled call.
        pending.on_decided(partial(_undo, queues))
        raise


def _undo(queues: Queues, pending: Pending[T]) -> None:
    """Release what a call has got whose caller was cancelled."""
    value = None if pending.error is not None else pending.value
    if isinstance(value, list):
        release(queues, value)
    elif isinstance(value, SessionLock):
        leave(queues, value)


async def _claim_async(queues: Queues, request: ClaimRequest, timeout_s: float | None) -> list[Claimed]:
    found = await until_async(queues, request.entity, lambda: claim(queues, request), timeout_s)
    if found and request.lock:
        queues.received_from.add(request.entity)
    # Only after an empty result: a cancellation in the await below cannot lose a claimed message.
    if queues.misspelt.is_suspect(request.entity, len(found)):
        # A hint must not turn an empty result into an error, for instance on a bus that has just been closed.
        with contextlib.suppress(BusError):
            queues.misspelt.compare(request.entity, [each.name for each in await queues.store.entities()])
    return found


async def receive_batch(queues: Queues, request: ClaimRequest, timeout_s: float | None) -> list[Received]:
    claiming = _claim_async(queues, request, timeout_s)
    if queues.watcher is not None:
        return await _watched(queues).receive(request.entity, claiming)
    return [Received(queues, each) for each in await claiming]


def receive(queues: Queues, request: ClaimRequest, timeout_s: float | None) -> ReceivedMessages:
    return ReceivedMessages(_received(queues, request, timeout_s))


async def _received(queues: Queues, request: ClaimRequest, timeout_s: float | None) -> AsyncGenerator[Received]:
    """Yield one message at a time, so that a receiver locks no more than it works on."""
    single = replace(request, count=1)
    # A new claim for each message, and not one claim for several: what is locked and not yet yielded would lose its
    # lock while the caller works.
    while True:
        received = await receive_batch(queues, single, timeout_s)
        if not received:
            return
        yield received[0]


async def receive_deferred(queues: Queues, entity: str, sequences: Iterable[int]) -> list[Received]:
    return await _deferred_by(queues, _deferred(entity, sequences))


async def _deferred_by(queues: Queues, request: ClaimRequest) -> list[Received]:
    # Claimed at once, and not through `until_async`: deferred messages are there or they are not, so there is nothing
    # to wait for.
    claiming = _cancellable(queues, queues.store.claim(request))
    if queues.watcher is not None:
        return await _watched(queues).receive(request.entity, claiming)
    return [Received(queues, each) for each in await claiming]


def _deferred(entity: str, sequences: Iterable[int]) -> ClaimRequest:
    # Read once: it may be an iterator, and both the count and the numbers are needed.
    wanted = tuple(sequences)
    if not wanted:
        raise UsageError("receive_deferred got no sequence numbers", "pass the numbers of deferred messages")
    return ClaimRequest(entity, len(wanted), sequences=wanted)


async def accept_session(
    queues: Queues, entity: str, session_id: str | None, timeout_s: float | None, consumer: str
) -> "SessionReceiver":
    wanted = WantedSession(queues, entity, session_id, consumer)
    return SessionReceiver(queues, wanted.found(await until_async(queues, entity, wanted.look, timeout_s)))


def _not_yet(error: BaseException) -> Pending[SessionLock | None]:
    if isinstance(error, SessionLocked):
        return resolved(None)
    raise error


class WantedSession:
    """A session to be accepted: the one with that id, waiting for its lock, or the next free one with messages."""

    def __init__(self, queues: Queues, entity: str, session_id: str | None, consumer: str) -> None:
        self._queues = queues
        self._entity = entity
        self._session_id = session_id
        self._consumer = consumer

    def look(self) -> Pending[SessionLock | None]:
        # A locked session counts as "not yet": the end of its lock wakes the watch of the entity.
        try:
            return self._queues.store.accept(self._entity, self._session_id, self._consumer).recover(_not_yet)
        except SessionLocked:
            return resolved(None)

    def found(self, lock: SessionLock | None) -> SessionLock:
        """The session lock of the last look; raises if it found none."""
        if lock is not None:
            return lock
        if self._session_id is None:
            raise SessionNotFound(
                f"{self._entity!r} has no free session with messages", "try again later, or pass session_id="
            )
        raise SessionLocked(
            f"session {self._session_id!r} of {self._entity!r} is locked by another receiver",
            "pass a longer timeout=, or accept another session",
        )


# For threads


def until(queues: Queues, entity: str, look: Callable[[], Pending[T]], timeout_s: float | None) -> T:
    """The same as `until_async`, for threads."""
    found = _waited(queues, look())
    if found or timeout_s == 0:
        return found
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        woken = threading.Event()
        stop = queues.store.watch(entity, woken.set)
        looks_again = False
        try:
            found = _waited(queues, look())
            if found:
                return found
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if (left_s is not None and left_s <= 0) or not woken.wait(left_s):
                return found
            looks_again = True
        finally:
            if not looks_again:
                stop()


def _waited(queues: Queues, pending: Pending[T]) -> T:
    """Wait for the answer; Ctrl-C, or another signal that raises, releases what the call gets."""
    try:
        return pending.wait()
    except BaseException:
        # Of any kind: a signal handler may raise what it likes, usually SystemExit. An error of the claim itself has no
        # value to undo.
        pending.on_decided(partial(_undo, queues))
        raise


def _claim(queues: Queues, request: ClaimRequest, timeout_s: float | None) -> list[Claimed]:
    found = until(queues, request.entity, lambda: claim(queues, request), timeout_s)
    if found and request.lock:
        queues.received_from.add(request.entity)
    if queues.misspelt.is_suspect(request.entity, len(found)):
        with contextlib.suppress(BusError):  # As above.
            queues.misspelt.compare(request.entity, [each.name for each in queues.store.entities().wait()])
    return found


def receive_batch_sync(queues: Queues, request: ClaimRequest, timeout_s: float | None) -> list[SyncReceived]:
    if queues.watcher is not None:
        return _watched(queues).receive_sync(request.entity, lambda: _claim(queues, request, timeout_s))
    return [SyncReceived(queues, each) for each in _claim(queues, request, timeout_s)]


def receive_sync(queues: Queues, request: ClaimRequest, timeout_s: float | None) -> SyncReceivedMessages:
    return SyncReceivedMessages(_received_sync(queues, request, timeout_s))


def _received_sync(queues: Queues, request: ClaimRequest, timeout_s: float | None) -> Generator[SyncReceived]:
    single = replace(request, count=1)
    while received := receive_batch_sync(queues, single, timeout_s):
        yield received[0]


def receive_deferred_sync(queues: Queues, entity: str, sequences: Iterable[int]) -> list[SyncReceived]:
    return _deferred_by_sync(queues, _deferred(entity, sequences))


def _deferred_by_sync(queues: Queues, request: ClaimRequest) -> list[SyncReceived]:
    if queues.watcher is not None:
        return _watched(queues).receive_sync(request.entity, lambda: _waited(queues, queues.store.claim(request)))
    return [SyncReceived(queues, each) for each in _waited(queues, queues.store.claim(request))]


def accept_session_sync(
    queues: Queues, entity: str, session_id: str | None, timeout_s: float | None, consumer: str
) -> "SyncSessionReceiver":
    wanted = WantedSession(queues, entity, session_id, consumer)
    return SyncSessionReceiver(queues, wanted.found(until(queues, entity, wanted.look, timeout_s)))


# Sessions


class HeldSession:
    """The common part of SessionReceiver and SyncSessionReceiver. `id` is the session id."""

    def __init__(self, queues: Queues, lock: SessionLock) -> None:
        self._queues = queues
        self._lock = lock
        self.id = lock.session_id
        self.entity = lock.entity
        self.closed = False
        # The lock for Renewals, which changes `until_ns` with each renewal.
        self._kept = KeptSession(lock, lock.until_ns)

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        return f"session {quoted(self.id)} of {quoted(self.entity, 40)}, {'closed' if self.closed else 'open'}"

    def _leave(self) -> Pending[None]:
        # Before the command: after an error the session counts as closed, too. Its lock is lost then, or the store has
        # stopped, and a second LEAVE could not succeed either.
        self.closed = True
        self._queues.renewals.stop(self._kept)
        return self._command(LEAVE_SESSION)

    def _command(self, verb: int, state: bytes | None = None) -> Pending[None]:
        # Fenced by the token: after a lost lock the store rejects the command, although another receiver may hold a
        # lock on the same session.
        command = SessionCommand(verb, self.entity, self.id, self._lock.token)
        if state is not None and not isinstance(state, bytes):
            raise UsageError(f"a session state must be bytes, not {type(state).__name__}", "encode it first")
        command.state = None if state is None else bytes(state)
        return self._queues.submit(command)

    def _renew(self) -> Pending[None]:
        """Extend the lock; never in a transaction, which could take the renewal back, or come too late."""
        return self._queues.store.apply([renewal_of(self._kept)]).map(lambda _: None)

    def _request(self, count: int, mode: str) -> ClaimRequest:
        return request_for(self.entity, count, mode, "", self._lock)

    def _log_not_released(self, error: BusError) -> None:
        """Log it and do not raise: the error of the block is the important one."""
        log.warning("session %r of %r was not released, it is locked until it expires: %s", self.id, self.entity, error)


class SessionReceiver(HeldSession):
    """An accepted session of MessageBus: `async with await bus.accept_session("orders") as session:`.

    The lock is renewed inside the block. If that fails, the block is cancelled and raises SessionLockLost.
    """

    def __init__(self, queues: Queues, lock: SessionLock) -> None:
        super().__init__(queues, lock)
        self._task: asyncio.Task[object] | None = None  # The task inside the block.
        self._lost: LockLost | None = None

    def receive(self, timeout: float | None = None, mode: str = PEEK_LOCK) -> AsyncIterator[Received]:
        """Iterate over the messages of the session, in order; ends when none arrives for `timeout` seconds."""
        return receive(self._queues, self._request(1, mode), timeout)

    async def receive_batch(self, count: int, timeout: float | None = None, mode: str = PEEK_LOCK) -> list[Received]:
        """Up to `count` messages as soon as one is ready; an empty list at the timeout."""
        return await receive_batch(self._queues, self._request(count, mode), timeout)

    async def receive_deferred(self, sequences: list[int]) -> list[Received]:
        """Deferred messages of the session by their sequence numbers: all, or MessageNotFound."""
        request = replace(self._request(1, PEEK_LOCK), sequences=tuple(sequences))
        return await _deferred_by(self._queues, request)

    def state(self) -> Pending[bytes | None]:
        """The stored state of the session; None if it has none."""
        return self._queues.store.session_state(self._lock)

    def set_state(self, state: bytes | None) -> Pending[None]:
        """Store the state of the session, or remove it with None. Raises SessionLockLost."""
        return self._command(SET_SESSION_STATE, state)

    def renew_lock(self) -> Pending[None]:
        """Extend the lock by its full duration from now. Not needed inside `async with`."""
        return self._renew()

    async def close(self) -> None:
        """Release the session, and with it the messages that were received and not settled."""
        if not self.closed:
            await self._leave()

    async def __aenter__(self) -> "SessionReceiver":
        # The task that enters the block is the one to cancel: a lost session must not be worked on any longer.
        self._task = asyncio.current_task()
        self._queues.renewals.start(self._kept, partial(self._on_lost, asyncio.get_running_loop()))
        return self

    def _on_lost(self, loop: asyncio.AbstractEventLoop, error: LockLost) -> None:
        notify_loop(loop, partial(self._cancel, error))

    def _cancel(self, error: LockLost) -> None:
        """On the task's loop: cancel the block. Another receiver may have the session by now."""
        # The block may have ended while this call waited in the loop's queue.
        if self._task is not None and not self.closed:
            self._lost = error
            self._task.cancel(msg=str(error))

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        task, self._task = self._task, None  # From here on a lost lock must not cancel the task: the block is over.
        lost, self._lost = self._lost, None
        # As in received.py: our own cancellation becomes SessionLockLost, and is taken back from the task.
        if lost is not None:
            self.closed = True
            self._queues.renewals.stop(self._kept)
            if task is not None:
                task.uncancel()
            raise lost from error
        try:
            await self.close()
        except BusError as not_released:
            if error is None:
                raise
            self._log_not_released(not_released)


class SyncSessionReceiver(HeldSession):
    """An accepted session of SyncMessageBus. A thread cannot be cancelled: after a lost lock the next call raises."""

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
        self._renew().wait()

    def close(self) -> None:
        if not self.closed:
            self._leave().wait()

    def __enter__(self) -> "SyncSessionReceiver":
        # Without a callback: no thread can be cancelled. The next command in the session raises SessionLockLost.
        self._queues.renewals.start(self._kept, None)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self.close()
        except BusError as not_released:
            if error is None:
                raise
            self._log_not_released(not_released)


refuse(
    SessionReceiver,
    SYNC_BLOCK,
    "this session was accepted by the async bus: `with` cannot release it",
    "write `async with await bus.accept_session(…) as session:`",
)
refuse(
    SyncSessionReceiver,
    ASYNC_BLOCK,
    "this session was accepted by unibus.sync.MessageBus: `async with` cannot release it",
    "write `with bus.accept_session(…) as session:`",
)
