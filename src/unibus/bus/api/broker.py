# mypyc: compiled
"""The durable operations for protocol servers: entity names and lock tokens in, claimed messages and results out.

    HTTP, AMQP, ZeroMQ ──▶ Broker ──▶ store
                             │
                             └──▶ listeners of this process, blocked publishers, tracing, rate limits

A server acts for remote clients, so no operation depends on the calling task: no current transaction, no object for a
received message, no queue that is created because it was named. The operations are for one event loop, and return a
Pending or a coroutine. An error is raised at once or with the answer; the value of a Pending is never read before it is
done. On a server the store's own thread commits, so that a slow disk never blocks the loop (decision 0023).

`endpoints` may not import the stores: this module re-exports the types that it needs.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from functools import partial
from typing import Final

import msgspec

from unibus.bus.api.broker_entities import EntityOperations
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.rate_limits import RateLimits
from unibus.bus.health import HealthStatus
from unibus.bus.queues.operations import Queues, notify_settled
from unibus.bus.queues.receivers import BATCH_MAX, WantedSession, leave, release, until_async
from unibus.core.envelope.fields import plain_text
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.message_properties import HeaderValue
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import (
    BY_TOKEN,
    LEAVE_SESSION,
    RENEW_SESSION,
    SET_SESSION_STATE,
    SETTLEMENTS,
    Cancel,
    Command,
    Renew,
    SendResult,
    SessionCommand,
    Settle,
)
from unibus.core.lifecycle.envelope import message_of, overrides_of, send_of
from unibus.core.lifecycle.state.entity import TOPIC
from unibus.errors import MessageNotFound, UsageError
from unibus.stores.seam.catalog import KnownEntity
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.pending import Pending, resolved
from unibus.stores.seam.store import ClaimRequest, EntityInfo, SessionLock, StoreHealth

__all__ = ["Broker", "Claimed", "EntityInfo", "HealthStatus", "Pending", "SendResult", "SessionLock", "StoreHealth"]

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""The limit for the messages of one answer. A client may ask for a thousand messages of 100 MB each: such an answer
would not fit into memory, and no other request would be served while it is written."""

_VERBS = {name: verb for verb, name in SETTLEMENTS.items()}


class Broker(EntityOperations):
    """The operations of one bus and its store. `commits_on_loop` is for programs whose loop has nothing else to do."""

    def __init__(self, bus: MessageBus, *, commits_on_loop: bool = False) -> None:
        super().__init__(bus._runtime)
        self._bus = bus
        self.answer_bytes_max = ANSWER_BYTES_MAX
        self._limits = RateLimits()
        # A setting of the store, not of this object: it holds for all callers of the store, the bus included.
        self._store.commit_placement.on_loops = commits_on_loop

    def now_ns(self) -> int:
        """The time of the store, with which lock expiries are compared."""
        return self._queues.now_ns()

    def health(self) -> HealthStatus:
        return self._bus.health_check()

    # Sending

    def message(self, entity: str, body: object, fields: Mapping[str, object]) -> Message:
        """A message for an existing entity. The fields are those of `MessageBus.send`. Raises EntityNotFound."""
        return self._queues.message(self.find(entity).name, body, dict(fields))

    def messages(
        self, entity: str, given: Iterable[tuple[object, Mapping[str, object]]], is_new: bool = False
    ) -> list[Message]:
        """The same for several, each a body with its fields. `is_new`: the queue will be created with them."""
        name = entity if is_new else self.find(entity).name
        return [self._queues.message(name, body, dict(fields)) for body, fields in given]

    def send(self, entity: str, message: Message) -> Pending[SendResult]:
        """Store a message in a queue, or in the subscriptions of a topic."""
        return self._send(entity, [message]).map(_first)

    def send_many(
        self, entity: str, messages: Iterable[Message], durability: Durability | None = None
    ) -> Pending[list[SendResult]]:
        """Store all messages or none. `durability` overrides the level of the store."""
        given = list(messages)
        return self._send(entity, given, durability).map(_sent) if given else resolved([])

    def _send(
        self, entity: str, messages: list[Message], durability: Durability | None = None
    ) -> Pending[list[object]]:
        found = self.find(entity)
        # By the exact name of the entity: listeners and metrics of this process are found by it.
        named = [_for(message, found.name) for message in messages]
        # Tokens are taken before the store is called. A send that the store then rejects has spent them: a client that
        # sends invalid messages is limited, too.
        if found.settings.sends_per_s:
            self._limits.admit_messages(found, named, self._store.catalog, self.now_ns())
        watcher = self._queues.watcher
        store = partial(self._store_in, found, durability)
        return store(named) if watcher is None else watcher.watch_send(found.name, named, store)

    def _store_in(
        self, found: KnownEntity, durability: Durability | None, messages: list[Message]
    ) -> Pending[list[object]]:
        commands = [send_of(message, found.name) for message in messages]
        # The topic of a persistent channel of this process: its listeners, its bound and its rate limit apply, too.
        # `send` returns None if no channel of this process has that name: then the store alone decides.
        if found.kind == TOPIC and self._runtime.durable is not None:
            pending = self._runtime.durable.send(found.name, messages, commands, durability)
            if pending is not None:
                return pending
        return self._store.apply(commands, durability)

    def cancel(self, entity: str, sequences: Iterable[int]) -> Pending[None]:
        """Remove scheduled messages: all of them, or MessageNotFound and none."""
        commands: list[Command] = [Cancel(entity, _sequence(entity, each)) for each in sequences]
        return self._store.apply(commands).map(_nothing) if commands else resolved(None)

    # Receiving

    async def receive(
        self,
        entity: str,
        count: int = 1,
        *,
        lock: bool = True,
        timeout_s: float | None = 0.0,
        consumer: str = "",
        session: SessionLock | None = None,
        interrupted: asyncio.Event | None = None,
    ) -> list[Claimed]:
        """Up to `count` messages as soon as one is ready; none after `timeout_s` seconds (None: waits for ever).

        Fewer if they are large: the one that reaches ANSWER_BYTES_MAX is the last. Without `lock` they are removed.
        A cancelled call releases its messages, without counting a delivery. `interrupted` ends the wait early.
        """
        # Before anything else: a rejected request creates no span and takes no token of a rate limit.
        _check_count(count)
        held = None if session is None else (session.session_id, session.token)
        request = ClaimRequest(
            entity, count, lock, plain_text("the consumer", consumer), held, (), self.answer_bytes_max
        )
        return await _watched(self._queues, entity, self._claim(request, timeout_s, interrupted))

    async def receive_deferred(
        self,
        entity: str,
        sequences: Iterable[int],
        *,
        lock: bool = True,
        consumer: str = "",
        session: SessionLock | None = None,
    ) -> list[Claimed]:
        """Deferred messages by their sequences: all of them, or MessageNotFound.

        MessageTooLarge, and none, for several with more than ANSWER_BYTES_MAX together. One alone may have any size.
        """
        wanted = tuple(_sequence(entity, each) for each in sequences)
        _check_count(len(wanted))
        held = None if session is None else (session.session_id, session.token)
        request = ClaimRequest(
            entity, len(wanted), lock, plain_text("the consumer", consumer), held, wanted, self.answer_bytes_max
        )
        return await _watched(self._queues, entity, _claimed(self._queues, self._look(request)))

    async def _claim(
        self, request: ClaimRequest, timeout_s: float | None, interrupted: asyncio.Event | None
    ) -> list[Claimed]:
        # An unknown entity is not refused here: the claim raises the store's error, with its hint.
        limited = self._store.catalog.find(request.entity)
        if limited is None or not limited.settings.receives_per_s:
            look = partial(self._look, request)
            return await until_async(self._queues, request.entity, look, timeout_s, _claimed, interrupted)
        # Tokens for the most that can come, taken before the wait; what did not come is refunded, also when the request
        # is cancelled or its client has disconnected.
        # Before the claim: messages that were claimed over the limit would have to be released, and would count as
        # locked meanwhile.
        allowed = self._limits.admit_receives(limited, request.count, self.now_ns())
        found: list[Claimed] = []
        try:
            look = partial(self._look, msgspec.structs.replace(request, count=allowed))
            found = await until_async(self._queues, request.entity, look, timeout_s, _claimed, interrupted)
        finally:
            self._limits.refund_receives(limited, allowed - len(found), self.now_ns())
        return found

    def _look(self, request: ClaimRequest) -> Pending[list[Claimed]]:
        pending = self._store.claim(request)
        # A destructive receive is never settled: notify blocked publishers now.
        return pending if request.lock else notify_settled(self._queues, request.entity, pending)

    def peek(
        self, entity: str, from_sequence: int = 0, count: int = 1, session_id: str | None = None
    ) -> Pending[list[Claimed]]:
        """Messages in any state, by sequence number, without locking them: their lock tokens are empty.

        Fewer than `count` if they are large: the one that reaches ANSWER_BYTES_MAX is the last.
        """
        _check_count(count)
        return self._store.peek(entity, max(0, from_sequence), count, session_id, self.answer_bytes_max)

    def decode(self, claimed: Claimed) -> Message:
        return message_of(claimed)

    # Settling

    def settle(
        self,
        verb: int | str,
        token: bytes,
        *,
        entity: str = "",
        message_id: str = "",
        reason: str = "",
        description: str = "",
        properties: Mapping[str, HeaderValue] | None = None,
    ) -> Pending[None]:
        """Settle a locked message by one of SETTLEMENTS, by number or name. Raises LockLost if the lock has ended.

        A given `entity` or `message_id` must be that of the message, else MessageNotFound, and the lock stays.
        """
        # By token alone: the client of a protocol knows the token of its lock, and not always the sequence.
        command = Settle(_verb(verb), entity, BY_TOKEN, _token(token))
        command.message_id = message_id
        command.reason = reason
        command.description = description
        command.overlay = overrides_of(dict(properties)) if properties else None
        watcher = self._queues.watcher
        # Looked up before the settlement, which ends the lock: blocked publishers are notified by the name of the
        # entity.
        place = self._store.catalog.entity_of_lock(token)
        if watcher is None:
            pending = self._store.apply([command])
        else:
            pending = watcher.watch_settle(
                int(command.verb), place or entity, message_id, lambda: self._store.apply([command])
            )
        # Without a lock `place` is empty. No channel has that name, so no publisher is notified.
        return notify_settled(self._queues, place, pending).map(_nothing)

    def renew(self, token: bytes, *, entity: str = "", message_id: str = "") -> Pending[int]:
        """Extend a lock by its full duration; the result is its new expiry. In a session: the session's lock."""
        command = Renew(entity, BY_TOKEN, _token(token))
        command.message_id = message_id
        return self._store.apply([command]).map(_number)

    # Sessions

    async def accept_session(
        self,
        entity: str,
        session_id: str | None = None,
        *,
        timeout_s: float | None = 0.0,
        consumer: str = "",
        interrupted: asyncio.Event | None = None,
    ) -> SessionLock:
        """Lock a session: the one with this id, or the next free one with messages. Waits up to `timeout_s` seconds.

        At the timeout, or when `interrupted` is set, raises SessionLocked, or SessionNotFound without an id.
        """
        # Not through `_claim`: an accepted session is no message, and takes no token of the rate limit.
        wanted = WantedSession(self._queues, entity, session_id, consumer)
        found = await until_async(self._queues, entity, wanted.look, timeout_s, _accepted, interrupted)
        return wanted.found(found)

    def renew_session(self, lock: SessionLock) -> Pending[int]:
        """Extend the lock; the result is its new expiry. Here and below only entity, id and token of the lock count."""
        return self._store.apply([_of_session(RENEW_SESSION, lock)]).map(_number)

    def release_session(self, lock: SessionLock) -> Pending[None]:
        """Release a session, and with it the messages that were received and not settled."""
        # Not through `notify_settled`: released messages stay in the entity, so no place becomes free.
        return self._store.apply([_of_session(LEAVE_SESSION, lock)]).map(_nothing)

    def session_state(self, lock: SessionLock) -> Pending[bytes | None]:
        return self._store.session_state(lock)

    def set_session_state(self, lock: SessionLock, state: bytes | None) -> Pending[None]:
        command = _of_session(SET_SESSION_STATE, lock)
        if state is not None and not isinstance(state, bytes):
            raise UsageError(f"a session state must be bytes, not {type(state).__name__}", "encode it first")
        command.state = state
        return self._store.apply([command]).map(_nothing)

    def sessions(self, entity: str, *, updated_after_ns: int = 0, skip: int = 0, top: int = 100) -> Pending[list[str]]:
        """Ids of sessions that have messages or a state; or only of those whose state was set after an instant."""
        if skip < 0 or not 1 <= top <= BATCH_MAX:
            raise UsageError(f"skip must be 0 or more and top from 1 to {BATCH_MAX}, got skip={skip} and top={top}")
        return self._store.catalog.sessions(entity, updated_after_ns, skip, top)


async def _watched(queues: Queues, entity: str, claiming: Coroutine[object, object, list[Claimed]]) -> list[Claimed]:
    watcher = queues.watcher
    return await claiming if watcher is None else await watcher.watch_claim(entity, claiming)


# These two undo a claim by `on_done`, unlike receivers.py: the value of a Pending is not read here before it is done.
async def _claimed(queues: Queues, pending: Pending[list[Claimed]]) -> list[Claimed]:
    try:
        return await pending
    except asyncio.CancelledError:
        pending.on_done(partial(_release, queues))  # The claimed messages are known only with the answer.
        raise


def _release(queues: Queues, pending: Pending[list[Claimed]]) -> None:
    if pending.error is None:
        release(queues, pending.value)


async def _accepted(queues: Queues, pending: Pending[SessionLock | None]) -> SessionLock | None:
    try:
        return await pending
    except asyncio.CancelledError:
        pending.on_done(partial(_leave, queues))
        raise


def _leave(queues: Queues, pending: Pending[SessionLock | None]) -> None:
    if pending.error is None and pending.value is not None:
        leave(queues, pending.value)


def _for(message: Message, entity: str) -> Message:
    """The message with the exact name of its entity: clients ignore the case of names, channels do not."""
    if message.channel == entity:
        return message
    # A new envelope: the given message belongs to the caller, who may send it again under its own name.
    other = restored(message.id, entity, message.body, message.timestamp_ns, message.properties)
    other.priority = message.priority
    return other


def _of_session(verb: int, lock: SessionLock) -> SessionCommand:
    return SessionCommand(verb, lock.entity, lock.session_id, _token(lock.token))


def _check_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= BATCH_MAX:
        raise UsageError(f"count must be a whole number from 1 to {BATCH_MAX}, got {count!r}")


def _sequence(entity: str, sequence: int) -> int:
    # MessageNotFound and not UsageError: a client that asks for an impossible number gets the same answer as for one
    # that is gone.
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence < 2**63:
        raise MessageNotFound(f"{entity!r} has no message #{sequence!r:.40}", "pass the sequence number of a message")
    return sequence


def _verb(verb: int | str) -> int:
    number = _VERBS.get(verb, 0) if isinstance(verb, str) else verb
    if number not in SETTLEMENTS:
        raise UsageError(f"unknown settlement {verb!r:.40}", f"use {', '.join(SETTLEMENTS.values())}")
    return number


def _token(token: bytes) -> bytes:
    if not isinstance(token, bytes):
        raise UsageError(f"a lock token must be bytes, not {type(token).__name__}")
    return token


def _first(results: list[object]) -> SendResult:
    return _sent(results)[0]


def _sent(results: list[object]) -> list[SendResult]:
    return [result for result in results if isinstance(result, SendResult)]


def _number(results: list[object]) -> int:
    until_ns = results[0]
    assert isinstance(until_ns, int)
    return until_ns


def _nothing(results: object) -> None:
    return None
