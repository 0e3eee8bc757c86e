# mypyc: compiled
"""The async face: what `from unibus import MessageBus` gives."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Final

from mypy_extensions import i64, mypyc_attr

from unibus.bus.api import ready as settled
from unibus.bus.api.bus_operations import BusOperations, one_or_all, several
from unibus.bus.dead_letters.dead_letter_manager import DeadLetterManager
from unibus.bus.entities.entities import Entities
from unibus.bus.history import archive
from unibus.bus.history.trace import MessageTrace
from unibus.bus.names import checked_name
from unibus.bus.outbox.relay_route import Relayed
from unibus.bus.pubsub.backpressure import post_blocking_async
from unibus.bus.pubsub.channel import DUPLICATE, FULL, POLICY_BLOCK, Channel
from unibus.bus.pubsub.delivery import QUANTUM
from unibus.bus.pubsub.loop_call import notify_loop
from unibus.bus.queues import receivers
from unibus.bus.queues.operations import PEEK_LOCK
from unibus.bus.queues.received import Received, complete_many
from unibus.bus.queues.receivers import SessionReceiver
from unibus.bus.subscriptions.drain import Deadline
from unibus.bus.subscriptions.requests import Reply, reply_body
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import HeaderValue, MessageProperties
from unibus.core.lifecycle.commands import SendResult
from unibus.core.lifecycle.state.entity import QUEUE, TOPIC
from unibus.errors import RequestTimeout
from unibus.limits import (
    DEAD_LETTER_RECOVERIES_MAX,
    QUERY_MEMORY_MB_DEFAULT,
    QUERY_ROWS_DEFAULT,
    QUERY_TIME_S_DEFAULT,
)
from unibus.stores.query import query
from unibus.stores.query.result import QueryResult
from unibus.stores.seam.pending import Pending

DRAIN_TIMEOUT_S: Final = 5.0
# With many channels: so many messages fit into the cache of a processor, and are worth waking every slot.
_DUE_MASK: Final = 2047


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageBus(BusOperations):
    """A bus for async programs; sync handlers and sync publishers are welcome too.

        async with MessageBus() as bus:
            bus.subscribe("orders", handler)
            await bus.publish("orders", {"id": 1})

    It belongs to the loop that it is entered on. Leaving the block waits for what its subscribers still have to
    handle, then closes; see `__aexit__`.
    """

    def publish(
        self,
        channel: object,
        payload: object = None,
        priority: object = None,
        trace_id: object = None,
        headers: Mapping[str, HeaderValue] | None = None,
        correlation_id: object = None,
        ttl: object = None,
        dedup_key: object = None,
        fields: Mapping[str, object] | None = None,
        delay: object = None,
    ) -> Awaitable[Message]:
        """Publish to a channel, or publish a Message. `fields` sets any other field of the envelope by its name.

        The message is admitted before this returns. An error means that it was not and will not be delivered; but for
        StoreFailed: then the outcome is unknown until the store is opened again.
        Awaiting waits for room where the channel's drop_policy is `block`, lets handlers run, and gives the message.
        A `delay` is refused, with a hint: `send` has one.
        """
        exchange = self._exchange
        workers = self._workers
        if delay is not None:
            raise self._refused_delay()
        properties: MessageProperties | None = None
        if trace_id is not None or headers is not None or correlation_id is not None or ttl is not None:
            properties = self._properties(trace_id, headers, correlation_id, ttl, dedup_key, fields)
        elif dedup_key is not None or fields is not None:
            properties = self._properties(None, None, None, None, dedup_key, fields)
        if isinstance(channel, str):
            target = exchange.channel(channel)
            message = exchange.envelope(target, payload, priority, properties)
        else:
            message = self._message(channel, payload, priority, properties)
            target = exchange.channel(message.channel)
        if workers is not None:
            return settled.published_by(workers.backend, message)
        if self._durable is not None and self._durable.takes(target.name):
            return self._durable.publish(target, message)
        if exchange.transactions and self._put_off(target, [message]):
            return settled.publish(message)
        verdict = exchange.post(target, message)
        if verdict <= DUPLICATE:
            if target.sequence & (QUANTUM - 1) == 0 or exchange.posts & _DUE_MASK == 0:
                # A loop that only publishes would never let its own handlers run.
                return settled.publish_after_others(message)
            return settled.publish(message)
        if verdict == FULL and target.policy == POLICY_BLOCK:
            return self._publish_when_room(target, [message])
        raise exchange.refusal(target, message, verdict)

    async def _publish_when_room(self, target: Channel, messages: list[Message]) -> Message:
        timeout_s = self._runtime.registry.config_of(target.name).block_timeout
        verdict: i64 = await post_blocking_async(self._exchange, target, messages, timeout_s)
        if verdict > DUPLICATE:
            raise self._exchange.refusal(target, one_or_all(messages), verdict)
        return messages[0]

    def publish_many(
        self, channel: str, payloads: Iterable[object], priority: object = None, **fields: object
    ) -> Awaitable[list[Message]]:
        """Publish several payloads to one channel: all of them are admitted, or none and an error."""
        self._only_in_memory("publish many at once, all or none")
        exchange = self._exchange
        messages = self._messages(channel, several(payloads), priority, self._properties_of(fields))
        target = exchange.channel(channel)
        if self._durable is not None and self._durable.takes(channel):
            return self._durable.publish_many(target, messages)
        if exchange.transactions and self._put_off(target, messages):
            return settled.publish_many(messages)
        verdict = exchange.post_many(target, messages)
        if verdict <= DUPLICATE:
            return settled.publish_many(messages)
        if verdict == FULL and target.policy == POLICY_BLOCK and len(messages) <= target.max_size:
            return self._publish_all_when_room(target, messages)
        raise exchange.refusal(target, messages, verdict)

    async def _publish_all_when_room(self, target: Channel, messages: list[Message]) -> list[Message]:
        await self._publish_when_room(target, messages)
        return messages

    def publish_json(self, channel: str, value: object, priority: object = None) -> Awaitable[Message]:
        """Publish anything that JSON can express, as plain JSON values; SerializationFailed for anything else."""
        return self.publish(channel, self._json(value), priority)

    def publish_from_sync(
        self,
        channel: object,
        payload: object = None,
        priority: object = None,
        trace_id: object = None,
        headers: Mapping[str, HeaderValue] | None = None,
        correlation_id: object = None,
        ttl: object = None,
        dedup_key: object = None,
        fields: Mapping[str, object] | None = None,
        delay: object = None,
    ) -> Message:
        """Publish from any thread without awaiting. On an event loop's thread it never blocks: no room is QueueFull."""
        self._only_in_memory("publish without awaiting")
        if delay is not None:
            raise self._refused_delay()
        properties = self._properties(trace_id, headers, correlation_id, ttl, dedup_key, fields)
        message = self._message(channel, payload, priority, properties)
        return self._publish_blocking(message, not on_a_loop())

    def request(
        self, channel: str, payload: object = None, timeout: float | None = 5.0, **fields: object
    ) -> Awaitable[Reply]:
        """Publish, and wait for what the handler returns. RequestTimeout, or RequestFailed if the handler gave up."""
        self._only_in_memory("request")
        message = self._message(channel, payload, None, self._properties_of(fields))
        return settled.request(self._request(message, timeout))

    async def _request(self, message: Message, timeout: float | None) -> object:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Message] = loop.create_future()

        def answer(answered: Message) -> None:
            notify_loop(loop, partial(settle, reply, answered))

        self._check_listened(message)
        request = self._requests.expect(message, answer)
        try:
            await self.publish(message)
            async with asyncio.timeout(timeout):
                return reply_body(await reply)
        except TimeoutError as error:
            raise no_reply(message.channel, timeout) from error
        finally:
            self._requests.forget(request)

    # Queues: what is sent is kept until it was received and completed

    def send(self, entity: object, payload: object = None, **fields: object) -> Pending[SendResult]:
        """Store a message in a queue, or for each subscription of a topic. Awaiting waits until that is durable.

        `fields` are those of the envelope, and: `priority`, `delay` (seconds), `message_id`, `durability` ("D1", "D2"),
        `on_duplicate` ("drop", "error").
        """
        return self._runtime.queues().send(entity, payload, fields)

    def send_many(self, entity: str, payloads: Iterable[object], **fields: object) -> Pending[list[SendResult]]:
        """Store several in one batch: all of them or none."""
        return self._runtime.queues().send_many(entity, payloads, fields)

    def receive(
        self, entity: str, timeout: float | None = None, mode: str = PEEK_LOCK, consumer: str = ""
    ) -> AsyncIterator[Received]:
        """Messages as they come, one at a time; ends when none came for `timeout` seconds (None: never)."""
        return receivers.receive(self._runtime.queues(), receivers.request_for(entity, 1, mode, consumer), timeout)

    def receive_batch(
        self, entity: str, count: int = 1, timeout: float | None = None, mode: str = PEEK_LOCK, consumer: str = ""
    ) -> Awaitable[list[Received]]:
        """Up to `count` messages, as soon as there is one; an empty list at the time-out. 0 does not wait."""
        request = receivers.request_for(entity, count, mode, consumer)
        return receivers.receive_batch(self._runtime.queues(), request, timeout)

    def receive_deferred(self, entity: str, sequences: Iterable[int]) -> Awaitable[list[Received]]:
        """Messages that were deferred, by their sequences: all of them, or MessageNotFound."""
        return receivers.receive_deferred(self._runtime.queues(), entity, sequences)

    def complete_many(self, messages: Iterable[Received]) -> Pending[None]:
        """Complete several in one batch: all of them, or LockLost and none."""
        return complete_many(self._runtime.queues(), messages)

    def peek(self, entity: str, count: int = 1, from_sequence: int = 0) -> Pending[list[Message]]:
        """A look at messages in whatever state, in order of their sequences. No effect."""
        return self._runtime.queues().peek(entity, count, from_sequence)

    def schedule(self, entity: str, payload: object, at: object, **fields: object) -> Awaitable[int]:
        """Store a message that nobody gets before `at`: a datetime, or seconds from now. Gives its sequence."""
        return self._runtime.queues().schedule(entity, payload, at, fields)

    def cancel_scheduled(self, entity: str, *sequences: int) -> Pending[None]:
        return self._runtime.queues().cancel(entity, sequences)

    def accept_session(
        self, entity: str, session_id: str | None = None, timeout: float | None = None, consumer: str = ""
    ) -> Awaitable[SessionReceiver]:
        """Lock a session: this one, or the next that is free and has messages.

        At the time-out SessionLocked, or SessionNotFound where none was named. 0 does not wait, None does so for ever.
        """
        return receivers.accept_session(self._runtime.queues(), entity, session_id, timeout, consumer)

    def relay_outbox(self, path: object, *, again: bool = False, adopt: bool = False) -> Pending[Relayed]:
        """Store what transactions over your own connections have left in that file; for instance after a crash.

        `again`: also what the store has refused before. `adopt`: also what was meant for another store.
        """
        return self._runtime.outboxes().relay(path, again, adopt)

    def create_queue(self, name: str, **settings: object) -> Pending[None]:
        """Make a queue. The same settings again are no change; others raise EntityExists."""
        return self._runtime.queues().outside_of_transactions().create(QUEUE, name, settings)

    def create_topic(self, name: str, **settings: object) -> Pending[None]:
        return self._runtime.queues().outside_of_transactions().create(TOPIC, name, settings)

    def create_subscription(self, topic: str, name: str, **settings: object) -> Pending[None]:
        """Make a subscription, which is received from as `topic/Subscriptions/name`."""
        return self._runtime.queues().outside_of_transactions().create_subscription(topic, name, settings)

    def update_entity(self, name: str, **settings: object) -> Pending[None]:
        return self._runtime.queues().outside_of_transactions().update(name, settings)

    def delete_entity(self, name: str) -> Pending[None]:
        """Delete an entity with everything in it."""
        return self._runtime.queues().outside_of_transactions().delete(name)

    @property
    def entities(self) -> Entities:
        """All verbs for queues, topics, subscriptions and rules. `await bus.entities()` lists what there is."""
        return Entities(self._runtime.queues())

    def dead_letter_queue(self, max_recoveries: object = DEAD_LETTER_RECOVERIES_MAX) -> DeadLetterManager:
        """What died in the store, to look at and to bring back. `max_recoveries` bounds how often one is retried."""
        self._only_in_memory("recover dead letters")
        return DeadLetterManager(self._runtime.queues(), max_recoveries)

    def trace_message(self, message_id: object) -> Awaitable[MessageTrace]:
        """Where a message went, over all its copies, and why it did not arrive where it did not. See MessageTrace."""
        return asyncio.to_thread(archive.trace, self._runtime.queues().store, message_id)

    def replay(self, channel: str, after: object = 0) -> AsyncIterator[Message]:
        """What the channel stored before, as far as history has it: after a sequence, or from a datetime on."""
        return archive.replay_async(self._runtime.queues().store, checked_name(channel), after)

    def prune_before(self, before: object, channel: str | None = None) -> Awaitable[int]:
        """Take what was stored before a datetime (or a sequence of one channel) out of replay. Gives how many.

        What waits in queues and groups stays. What a channel kept because nobody subscribed goes.
        """
        return asyncio.to_thread(archive.prune, self._runtime.queues().store, before, channel)

    def delete_message(self, message_id: object) -> Awaitable[int]:
        """Take one message out of every place where it waits, and out of replay. Gives how many places that were."""
        return asyncio.to_thread(archive.delete, self._runtime.queues().store, message_id)

    # SQL over messages

    def query_messages(
        self,
        sql: object,
        parameters: object = (),
        *,
        time_limit: object = QUERY_TIME_S_DEFAULT,
        rows_max: object = QUERY_ROWS_DEFAULT,
        memory_mb: object = QUERY_MEMORY_MB_DEFAULT,
    ) -> Coroutine[object, object, QueryResult]:
        """The rows of a SELECT over `messages`, `dead_letters`, `events` and `outgoing`. It only reads.

        Beyond `rows_max` the result is `truncated`; QueryStopped at the other limits, QueryInvalid for other SQL.
        """
        return query(self._runtime.queues().store, sql, parameters, time_limit, rows_max, memory_mb).run_aside()

    def execute_query(
        self, sql: object, parameters: object = (), **limits: object
    ) -> Coroutine[object, object, QueryResult]:
        """The same as `query_messages`, by the name that it has in the storage interface."""
        return query(self._runtime.queues().store, sql, parameters, **limits).run_aside()

    # Life. The defaults stand in plain methods: of a compiled coroutine nobody can read them.

    def drain(self, timeout: float | None = None) -> Awaitable[bool]:
        """Wait until every message was handled, retries included, however late they are. False at the time-out.

        Messages that no subscriber takes are not waited for: kept by a channel, or in a queue.
        """
        self._only_in_memory("drain")
        return self._runtime.drain.wait_async(timeout)

    def stop(self, timeout: float | None = DRAIN_TIMEOUT_S) -> Awaitable[bool]:
        """Stop handing over; messages wait for `start`. False if a handler was still busy at the time-out.

        A stopped bus that is closed does not wait for its backlog.
        """
        self._only_in_memory("stop")
        return self._stop(timeout)

    async def _stop(self, timeout: float | None) -> bool:
        runtime = self._runtime
        deadline = Deadline(timeout)
        threads_ended = await asyncio.to_thread(runtime.places.pause, timeout)
        return await runtime.drain.wait_async(deadline.left_s(), runtime.places.are_at_rest) and threads_ended

    def close(self, drain_timeout: float | None = DRAIN_TIMEOUT_S) -> Coroutine[object, object, None]:
        """Refuse new messages, wait for those that subscribers have to handle (at most so long), then end all workers.

        Waited for: in-flight messages, the backlog of groups whose handler can run, retries within 5 seconds. On
        persistent channels of a durable store only what is in-flight: the rest stays in the store. What is lost is a
        warning in the log, with numbers. The time-out is 5 seconds; None waits as long as handlers take.
        It returns when the bus is closed, for all who call it. A call that is cancelled or interrupted only stops to
        wait: the bus goes on closing, and the next call waits for the same end.
        """
        return self._close(drain_timeout)

    async def _close(self, drain_timeout: float | None) -> None:
        shutdown = self._runtime.shutdown
        workers = self._workers
        if workers is None or shutdown.closing.is_done:
            await shutdown.closing.close_async(drain_timeout)
            return
        shutdown.refuse()
        failure = await workers.close()
        await shutdown.closing.close_async(drain_timeout)
        if failure is not None:
            raise failure

    async def __aenter__(self) -> "MessageBus":
        self._runtime.registry.check_open("entered")
        self._runtime.places.home = asyncio.get_running_loop()
        self._runtime.start(None)
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        """`close` without a time-out: wait as long as the handlers take. The log says every 5 seconds what for.

        A cancelled task and Ctrl-C end the wait, and so does `close(drain_timeout=…)` from elsewhere. A block that is
        left by an exception waits for at most 5 seconds.
        """
        if kind is not None:
            await self.close()
            return
        self._runtime.shutdown.is_left = True
        try:
            await self.close(None)
        except BaseException:
            self._runtime.shutdown.closing.shorten(0.0)  # What ends the wait ends it for the handlers, too.
            raise


def settle(reply: "asyncio.Future[Message]", message: Message) -> None:
    if not reply.done():
        reply.set_result(message)


def no_reply(channel: str, timeout: float | None) -> RequestTimeout:
    return RequestTimeout(
        f"no reply from {channel!r} within {timeout} s", "is a handler subscribed, and does it return something?"
    )


def on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
