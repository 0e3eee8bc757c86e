# mypyc: compiled
"""The async API: `from unibus import MessageBus`. SyncMessageBus (sync_bus.py) has the same methods for threads.

Operations act when they are called, and the result is awaited for what takes time: durability, a free place, a reply.
So `publish` and `send` are plain methods that return an awaitable, and bad input raises at the call.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Final

from mypy_extensions import mypyc_attr

from unibus.bus.api import ready as settled
from unibus.bus.api.bus_operations import BusOperations, several
from unibus.bus.dead_letters.dead_letter_manager import DeadLetterManager
from unibus.bus.dead_letters.purge import purge_entity
from unibus.bus.dead_letters.steps import walk_async
from unibus.bus.entities.entities import Entities
from unibus.bus.history import archive
from unibus.bus.history.trace import MessageTrace
from unibus.bus.mistaken_keywords import add_publish_hint, check_request_keywords, name_unknown_keywords
from unibus.bus.names import checked_name
from unibus.bus.other_api import NOT_AWAITED, SYNC_BLOCK, refuse
from unibus.bus.outbox.relay_route import Relayed
from unibus.bus.pubsub.backpressure import on_a_loop
from unibus.bus.pubsub.channel import DUPLICATE, FULL, Channel
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
from unibus.stores.seam.store_view import OpenStoreView

DRAIN_TIMEOUT_S: Final = 5.0
# After this many messages over all channels the handlers get a turn: as many as fit into the cache of a processor.
_DUE_MASK: Final = 2047


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageBus(BusOperations):
    """A message bus for async programs. Sync handlers and publishers in other threads may use it, too.

        async with MessageBus() as bus:
            bus.subscribe("orders", handler)
            await bus.publish("orders", {"id": 1})

    It belongs to the event loop that it is entered on. The end of the block waits until the subscribers have handled
    their messages, then closes the bus; see `close`.
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
        """Publish a payload to a channel, or a Message: `await bus.publish("orders", {"id": 1})`.

        `fields` sets other fields of the envelope by name. The message is admitted before this returns. Await the
        result to wait for a free place and for durability (persistent channel), and to let handlers run; it is the
        Message. A publish waits for a free place on a channel that was not created by `create_channel`, at most 30
        seconds, and on one with drop_policy `block`. It raises QueueFull at once where that could never end: no handler
        of the channel can run, or its handlers wait for the handler that publishes.

        After an error the message was not published and will not be delivered. The exception is StoreFailed: then the
        outcome is unknown until the store is opened again. Raises QueueFull, RateLimited, ChannelNotFound, BusClosed,
        MessageTooLarge, PriorityInvalid, UsageError (also for a `delay`: use `send`).
        """
        exchange = self._exchange
        # The order decides which error wins, as in Exchange.publish: arguments, then the channel, then the envelope.
        # Nothing is changed before the message is posted.
        workers = self._workers
        if delay is not None:
            raise self._refused_delay()
        properties: MessageProperties | None = None
        if trace_id is not None or headers is not None or correlation_id is not None or ttl is not None:
            properties = self._properties(trace_id, headers, correlation_id, ttl, dedup_key, fields)
        elif dedup_key is not None or fields is not None:
            properties = self._properties(None, None, None, None, dedup_key, fields)
        # The common form without the call of `_message`, in the hot path.
        if isinstance(channel, str):
            target = exchange.channel(channel)
            message = exchange.envelope(target, payload, priority, properties)
        else:
            message = self._message(channel, payload, priority, properties)
            target = exchange.channel(message.channel)
        # A backend has no PublishPath and no backpressure: its own `publish` is awaited by the caller.
        if workers is not None:
            return settled.published_by(workers.backend, message)
        if self._durable is not None and self._durable.takes(target.name):
            return self._durable.publish(target, message)
        # The counter first: without an open transaction on this bus, no context variable is read. A persistent publish
        # has joined the transaction above, inside of `_durable`.
        if exchange.transactions and self._put_off(target, [message]):
            return settled.publish(message)
        verdict = exchange.post(target, message)
        if verdict <= DUPLICATE:
            if target.sequence & (QUANTUM - 1) == 0 or exchange.posts & _DUE_MASK == 0:
                # Yield to the event loop: a task that only publishes would never let its own handlers run.
                return settled.publish_after_others(message)
            return settled.publish(message)
        # The coroutine registers the publisher when it is awaited, and not before: a result that is never awaited must
        # not hold a position among the blocked publishers.
        if verdict == FULL and target.waits:
            return self._publish_when_free(target, [message])
        raise exchange.refusal(target, message, verdict)

    def _publish_when_free(self, target: Channel, messages: list[Message]) -> Awaitable[Message]:
        """Wait for a free place, as soon as the result is awaited."""
        if self._is_posted_at_call(target, messages):
            return settled.publish(messages[0])
        return self._wait_for_place(target, messages)

    def _is_posted_at_call(self, target: Channel, messages: list[Message]) -> bool:
        """In a thread without an event loop the result cannot be awaited: publish now or raise, on an implicit channel.

        A sync handler that calls `publish` would otherwise lose the message with a coroutine that never runs.
        """
        if target.declared or on_a_loop():
            return False
        self._post_blocking(target, messages, False)
        return True

    async def _wait_for_place(self, target: Channel, messages: list[Message]) -> Message:
        await self._runtime.backpressure.post_async(target, messages, target.block_timeout_s)
        return messages[0]

    def publish_many(
        self, channel: str, payloads: Iterable[object], priority: object = None, **fields: object
    ) -> Awaitable[list[Message]]:
        """Publish several payloads to one channel as a batch: all are admitted, or none and an error is raised."""
        self._only_in_memory("publish a batch")
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
        # A batch larger than the bound would wait for ever: it is refused at once.
        if verdict == FULL and target.waits and len(messages) <= target.max_size:
            at_call = self._is_posted_at_call(target, messages)
            return settled.publish_many(messages) if at_call else self._wait_for_places(target, messages)
        raise exchange.refusal(target, messages, verdict)

    async def _wait_for_places(self, target: Channel, messages: list[Message]) -> list[Message]:
        await self._runtime.backpressure.post_async(target, messages, target.block_timeout_s)
        return messages

    def publish_json(self, channel: str, value: object, priority: object = None) -> Awaitable[Message]:
        """Publish a value as plain JSON values; raises SerializationFailed if JSON cannot express it."""
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
        """Publish from any thread without awaiting. A full channel raises QueueFull; one that was created with
        drop_policy `block` blocks the thread, unless an event loop runs in it."""
        self._only_in_memory("publish without awaiting")
        if delay is not None:
            raise self._refused_delay()
        properties = self._properties(trace_id, headers, correlation_id, ttl, dedup_key, fields)
        message = self._message(channel, payload, priority, properties)
        return self._publish_blocking(message, not on_a_loop())

    def request(
        self, channel: str, payload: object = None, timeout: float | None = 5.0, **fields: object
    ) -> Awaitable[Reply]:
        """Publish, and wait for the value that the handler returns: `price = await bus.request("prices", "ABC")`.

        Raises RequestTimeout without a reply or a subscriber, and RequestFailed if the handler failed finally.
        """
        self._only_in_memory("request")
        check_request_keywords(fields)
        message = self._message(channel, payload, None, self._properties_of(fields))
        return settled.request(partial(self._request, message, timeout))

    async def _request(self, message: Message, timeout: float | None) -> object:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Message] = loop.create_future()

        def answer(answered: Message) -> None:
            # In the thread of the replying handler, which may be another one: a future may only be resolved on its own
            # loop.
            notify_loop(loop, partial(settle, reply, answered))

        # Before `expect`: a request that fails here leaves no open request behind.
        self._check_listened(message)
        graph = self._runtime.backpressure.graph
        request = self._requests.expect(message, answer)
        asking = graph.current_group()
        if asking is not None:
            # A handler that waits for a reply may block its own group. Its wait is an edge of the wait graph, so that
            # no publisher waits in a cycle with it (wait_graph.py).
            graph.enter_request(asking, request, message.channel)
        try:
            async with asyncio.timeout(timeout):
                # Inside of the timeout: the wait for a free place is a part of the time for the reply.
                await self.publish(message)
                return reply_body(await reply)
        # Only that of the timeout above: an error of the handler arrives as RequestFailed.
        except TimeoutError as error:
            raise no_reply(message.channel, timeout) from error
        finally:
            if asking is not None:
                graph.leave(asking, request)
            # Also after a cancellation: a reply that comes later finds no open request and is ignored.
            self._requests.forget(request)

    # Queues: a message is stored until it is received and completed

    def send(self, entity: object, payload: object = None, **fields: object) -> Pending[SendResult]:
        """Store a message in a queue, or in each subscription of a topic: `await bus.send("invoices", body, delay=60)`.

        Await the result to wait until the message is durable. `fields` are those of the envelope, and `priority`,
        `delay` (seconds), `message_id`, `durability` ("D1", "D2"), `on_duplicate` ("drop", "error"). A missing queue is
        created, unless the bus is strict. Raises EntityNotFound, EntityExists, QuotaExceeded, StoreFailed, UsageError.
        """
        return self._runtime.queues().send(entity, payload, fields)

    def send_many(self, entity: str, payloads: Iterable[object], **fields: object) -> Pending[list[SendResult]]:
        """Store several messages in one batch: all or none."""
        return self._runtime.queues().send_many(entity, payloads, fields)

    def receive(
        self, entity: str, timeout: float | None = None, mode: str = PEEK_LOCK, consumer: str = ""
    ) -> AsyncIterator[Received]:
        """Receive messages one at a time; the iteration ends when none arrives for `timeout` seconds (None: never).

            async for message in bus.receive("invoices"):
                async with message:
                    handle(message.body)

        The end of the `with` block completes the message; an exception in it abandons the message.
        """
        return receivers.receive(self._runtime.queues(), receivers.request_for(entity, 1, mode, consumer), timeout)

    def receive_batch(
        self, entity: str, count: int = 1, timeout: float | None = None, mode: str = PEEK_LOCK, consumer: str = ""
    ) -> Awaitable[list[Received]]:
        """Up to `count` messages, as soon as one is ready; an empty list at the timeout. 0 does not wait."""
        request = receivers.request_for(entity, count, mode, consumer)
        return receivers.receive_batch(self._runtime.queues(), request, timeout)

    def receive_deferred(self, entity: str, sequences: Iterable[int]) -> Awaitable[list[Received]]:
        """Receive deferred messages by their sequence numbers: all of them, or MessageNotFound."""
        return receivers.receive_deferred(self._runtime.queues(), entity, sequences)

    def complete_many(self, messages: Iterable[Received]) -> Pending[None]:
        """Complete several messages in one batch: all, or LockLost and none."""
        return complete_many(self._runtime.queues(), messages)

    def peek(self, entity: str, count: int = 1, from_sequence: int = 0) -> Pending[list[Message]]:
        """Read messages in any state, by sequence number, without locking or changing them."""
        return self._runtime.queues().peek(entity, count, from_sequence)

    def schedule(self, entity: str, payload: object, at: object, **fields: object) -> Awaitable[int]:
        """Store a message that is not delivered before `at`: a datetime, or seconds from now.

        The result is its sequence number, for `cancel_scheduled`.
        """
        return self._runtime.queues().schedule(entity, payload, at, fields)

    def cancel_scheduled(self, entity: str, *sequences: int) -> Pending[None]:
        """Remove scheduled messages by their sequence numbers: all, or MessageNotFound and none."""
        return self._runtime.queues().cancel(entity, sequences)

    def accept_session(
        self, entity: str, session_id: str | None = None, timeout: float | None = None, consumer: str = ""
    ) -> Awaitable[SessionReceiver]:
        """Lock a session: the one with this id, or the next free one with messages.

            async with await bus.accept_session("orders", timeout=5) as session:
                async for message in session.receive(timeout=1): ...

        At the timeout it raises SessionLocked, or SessionNotFound without an id. 0 does not wait, None waits for ever.
        """
        return receivers.accept_session(self._runtime.queues(), entity, session_id, timeout, consumer)

    def relay_outbox(self, path: object, *, again: bool = False, adopt: bool = False) -> Pending[Relayed]:
        """Relay the messages that transactions on your own connections left in the outbox of that database file, for
        instance after a crash. `again`: also those that the store has rejected before. `adopt`: also those that were
        meant for another store.
        """
        return self._runtime.outboxes().relay(path, again, adopt)

    def create_queue(self, name: str, **settings: object) -> Pending[None]:
        """Create a queue: `await bus.create_queue("invoices", lock_duration=30)`.

        Idempotent for the same settings; other settings raise EntityExists.
        """
        return self._runtime.queues().outside_of_transactions().create(QUEUE, name, settings)

    def create_topic(self, name: str, **settings: object) -> Pending[None]:
        """Create a topic; as `create_queue`."""
        return self._runtime.queues().outside_of_transactions().create(TOPIC, name, settings)

    def create_subscription(self, topic: str, name: str, **settings: object) -> Pending[None]:
        """Create a subscription of a topic. Receive from it as `topic/Subscriptions/name`."""
        return self._runtime.queues().outside_of_transactions().create_subscription(topic, name, settings)

    def update_entity(self, name: str, **settings: object) -> Pending[None]:
        """Change settings of a queue, topic or subscription; the others stay. Raises EntityNotFound."""
        return self._runtime.queues().outside_of_transactions().update(name, settings)

    def delete_entity(self, name: str) -> Pending[None]:
        """Delete a queue, topic or subscription with all its messages. Raises EntityNotFound."""
        return self._runtime.queues().outside_of_transactions().delete(name)

    def purge(self, entity: str) -> Awaitable[int]:
        """Remove all messages of a queue, a subscription or a dead-letter queue, in batches. The result: how many.

        Scheduled and deferred messages as well; in-flight messages and messages that are sent meanwhile stay. It cannot
        be undone. Raises EntityNotFound, and UsageError for a topic: purge its subscriptions.
        """
        queues = self._runtime.queues().outside_of_transactions()
        name = checked_name(entity, "queue name")
        return settled.purge(lambda: walk_async(purge_entity(queues, name)))

    @property
    def entities(self) -> Entities:
        """Operations on queues, topics, subscriptions and rules. `await bus.entities()` lists them."""
        return Entities(self._runtime.queues())

    def dead_letter_queue(self, max_recoveries: object = DEAD_LETTER_RECOVERIES_MAX) -> DeadLetterManager:
        """The dead-lettered messages of the store: list, retry, discard. `max_recoveries` limits retries of each."""
        self._only_in_memory("manage dead-lettered messages")
        return DeadLetterManager(self._runtime.queues(), max_recoveries)

    def trace_message(self, message_id: object) -> Awaitable[MessageTrace]:
        """The path of a message and all its copies through the store, and where it stopped and why."""
        return settled.trace_message(self._runtime.queues().store, message_id)

    def replay(self, channel: str, after: object = 0) -> AsyncIterator[Message]:
        """Read again what the channel stored, as far as history has it: after a sequence number or from a datetime."""
        return archive.replay_async(self._runtime.queues().store, checked_name(channel), after)

    def prune_before(self, before: object, channel: str | None = None) -> Awaitable[int]:
        """Remove messages before a datetime (or a sequence number of one channel) from replay. The result: how many.

        Messages that wait in queues and groups stay. Messages that a channel keeps for its first group are removed.
        """
        return settled.prune_before(self._runtime.queues().store, before, channel)

    def delete_message(self, message_id: object) -> Awaitable[int]:
        """Remove one message from all queues and groups where it waits, and from replay. The result: from how many."""
        return settled.delete_message(self._runtime.queues().store, message_id)

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
        """Run a SELECT over the tables `messages`, `dead_letters`, `events` and `outgoing`; read-only.

        More rows than `rows_max` are cut off (`truncated`). Raises QueryStopped at the other limits, and QueryInvalid
        for invalid or other SQL.
        """
        # Arguments and limits are checked at the call; the SQL is compiled and run when the result is awaited.
        asked = query(OpenStoreView(self._runtime.queues().store), sql, parameters, time_limit, rows_max, memory_mb)
        return settled.query_messages(asked)

    def execute_query(
        self, sql: object, parameters: object = (), **limits: object
    ) -> Coroutine[object, object, QueryResult]:
        """The same as `query_messages`, under the name of the storage interface."""
        return settled.query_messages(query(OpenStoreView(self._runtime.queues().store), sql, parameters, **limits))

    # Start, stop, close. The defaults are in plain methods: inspect cannot read them from a compiled coroutine.

    def drain(self, timeout: float | None = None) -> Awaitable[bool]:
        """Wait until every message is handled, all retries included. False at the timeout.

        Does not wait for messages without a subscriber: those that a channel keeps, and those in queues.
        """
        self._only_in_memory("drain")
        return settled.drain(partial(self._runtime.drain.wait_async, timeout))

    def stop(self, timeout: float | None = DRAIN_TIMEOUT_S) -> Awaitable[bool]:
        """Stop the delivery; messages wait for `start`. False if a handler was still running at the timeout.

        The close of a stopped bus does not wait for its backlog.
        """
        self._only_in_memory("stop")
        return settled.stop(partial(self._stop, timeout))

    async def _stop(self, timeout: float | None) -> bool:
        runtime = self._runtime
        deadline = Deadline(timeout)
        # In a thread: `pause` joins the worker threads, and their handlers may need this loop to return. Async handlers
        # are waited for afterwards, on the loop.
        threads_ended = await asyncio.to_thread(runtime.executors.pause, timeout)
        return await runtime.drain.wait_async(deadline.left_s(), runtime.executors.are_at_rest) and threads_ended

    def close(self, drain_timeout: float | None = DRAIN_TIMEOUT_S) -> Coroutine[object, object, None]:
        """Reject new messages, wait until subscribers have handled theirs (at most `drain_timeout`), then end all work.

        Waits for in-flight messages, the backlog of groups whose handler can run, and retries that are due within 5
        seconds. On persistent channels of a durable store it waits for in-flight messages only: the rest stays in the
        store. Lost messages are logged as a warning with their count. None waits as long as handlers take.

        It may be called several times; every call returns when the bus is closed. A call that is cancelled or
        interrupted only stops waiting: the bus continues to close, and the next call waits for the same end.
        """
        return settled.close(partial(self._close, drain_timeout))

    async def _close(self, drain_timeout: float | None) -> None:
        shutdown = self._runtime.shutdown
        workers = self._workers
        # Closed already, and the workers before that: nothing is left to end.
        if workers is None or shutdown.closing.is_done:
            await shutdown.closing.close_async(drain_timeout)
            return
        # First, as for every close. The workers end before the steps of the shutdown, and an error of the backend is
        # raised last: it must not keep the bus open.
        shutdown.refuse()
        failure = await workers.close()
        await shutdown.closing.close_async(drain_timeout)
        if failure is not None:
            raise failure

    async def __aenter__(self) -> "MessageBus":
        self._runtime.registry.check_open("entered")
        # The home loop: async handlers that are subscribed without a running loop run on it (HomeExecutor).
        self._runtime.executors.home = asyncio.get_running_loop()
        self._runtime.start(None)
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        """Close without a timeout: waits as long as the handlers take, and logs every 5 seconds what it waits for.

        Cancelling the task, Ctrl-C, and `close(drain_timeout=…)` from elsewhere end the wait. After an exception in the
        block it waits at most 5 seconds.
        """
        # After an exception the caller wants to see the error soon, and not after the handlers of a long backlog.
        if kind is not None:
            add_publish_hint(error)
            await self.close()
            return
        self._runtime.shutdown.is_left = True
        try:
            await self.close(None)
        except BaseException:
            self._runtime.shutdown.closing.shorten(0.0)  # The close itself must not wait for handlers any longer, too.
            raise


name_unknown_keywords(MessageBus)
refuse(
    MessageBus,
    SYNC_BLOCK,
    "MessageBus is the async bus: `with` cannot open it",
    "write `async with MessageBus() as bus:` in an `async def`; without async use unibus.sync.MessageBus",
)
refuse(
    Pending,
    NOT_AWAITED,
    "the result of an async bus was used before it was awaited",
    "write `await` before the call; without async use unibus.sync.MessageBus",
)


def settle(reply: "asyncio.Future[Message]", message: Message) -> None:
    # Cancelled meanwhile, or at its timeout: the reply came in the same turn of the loop.
    if not reply.done():
        reply.set_result(message)


def no_reply(channel: str, timeout: float | None) -> RequestTimeout:
    return RequestTimeout(
        f"no reply from {channel!r} within {timeout} s",
        "check that the handler returns a value in time, or pass a longer timeout=",
    )
