# mypyc: compiled
"""The sync API: `from unibus.sync import MessageBus`, the methods of MessageBus for threads.

It publishes through the exchange directly and needs no event loop; each call returns when its work is done: admitted,
durable, replied. MessageBus documents the errors of each method.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mypy_extensions import i64, mypyc_attr

from unibus.bus.api.bus_operations import BusOperations, several
from unibus.bus.api.message_bus import DRAIN_TIMEOUT_S, no_reply
from unibus.bus.dead_letters.dead_letter_manager import SyncDeadLetterManager
from unibus.bus.dead_letters.purge import purge_entity
from unibus.bus.dead_letters.steps import walk
from unibus.bus.entities.entities import SyncEntities
from unibus.bus.history import archive
from unibus.bus.history.trace import MessageTrace
from unibus.bus.mistaken_keywords import add_publish_hint, check_request_keywords, name_unknown_keywords
from unibus.bus.names import checked_name
from unibus.bus.other_api import ASYNC_BLOCK, refuse
from unibus.bus.outbox.relay_route import Relayed
from unibus.bus.pubsub.backpressure import on_a_loop, one_or_all
from unibus.bus.pubsub.channel import DUPLICATE, FULL, Channel
from unibus.bus.queues import receivers
from unibus.bus.queues.operations import PEEK_LOCK
from unibus.bus.queues.received import SyncReceived, complete_many
from unibus.bus.queues.receivers import SyncSessionReceiver
from unibus.bus.subscriptions.drain import Deadline
from unibus.bus.subscriptions.requests import Reply, reply_body
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import HeaderValue, MessageProperties
from unibus.core.lifecycle.commands import SendResult
from unibus.core.lifecycle.state.entity import QUEUE, TOPIC
from unibus.errors import QueueFull
from unibus.limits import (
    DEAD_LETTER_RECOVERIES_MAX,
    QUERY_MEMORY_MB_DEFAULT,
    QUERY_ROWS_DEFAULT,
    QUERY_TIME_S_DEFAULT,
)
from unibus.stores.query import query
from unibus.stores.query.result import QueryResult
from unibus.stores.seam.store_view import OpenStoreView

# How often a publisher checks whether it should yield to the workers: a fraction of the default max_queue_size.
_YIELD_MASK: Final = 127
# How often it yields if any message waits: as many messages as fit into the cache of a processor.
_DUE_MASK: Final = 4095
_BACKLOG: Final = 4096


@mypyc_attr(allow_interpreted_subclasses=True)
class SyncMessageBus(BusOperations):
    """A message bus for synchronous programs. Async handlers run on an event loop in a thread of the bus.

        with MessageBus() as bus:
            bus.subscribe("orders", handler)
            bus.publish("orders", {"id": 1})

    The end of the block waits until the subscribers have handled their messages, then closes the bus; see `close`.
    """

    def _is_sync(self) -> bool:
        return True

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
    ) -> Message:
        """Publish a payload to a channel, or a Message: `bus.publish("orders", {"id": 1})`. Thread-safe.

        Returns the Message when it is admitted, and on a persistent channel when it is durable. Blocks while the
        channel is full: at most 30 seconds on a channel that was not created by `create_channel`, and as long as
        `block_timeout` says with drop_policy `block`; never in the thread of an event loop. After an error it was not
        published and will not be delivered, except after StoreFailed: then the outcome is unknown until the store is
        opened again. Raises QueueFull, RateLimited, ChannelNotFound, BusClosed, MessageTooLarge, PriorityInvalid,
        UsageError (also for a `delay`: use `send`).
        """
        exchange = self._exchange
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
        if self._durable is not None and self._durable.takes(target.name):
            return self._durable.publish(target, message).wait()
        if exchange.transactions and self._put_off(target, [message]):
            return message
        verdict = exchange.post(target, message)
        # A duplicate is no error: it is dropped and counted, and the publisher that repeats itself gets its message.
        if verdict > DUPLICATE:
            self._refused(target, [message], verdict)
        elif exchange.posts & _YIELD_MASK == 0:
            yield_gil(target, exchange.posts & _DUE_MASK == 0)
        return message

    def publish_many(
        self, channel: str, payloads: Iterable[object], priority: object = None, **fields: object
    ) -> list[Message]:
        """Publish several payloads to one channel as a batch: all are admitted, or none and an error is raised."""
        target = self._exchange.channel(channel)
        messages = self._messages(channel, several(payloads), priority, self._properties_of(fields))
        if self._durable is not None and self._durable.takes(channel):
            return self._durable.publish_many(target, messages).wait()
        if self._exchange.transactions and self._put_off(target, messages):
            return messages
        verdict = self._exchange.post_many(target, messages)
        if verdict > DUPLICATE:
            self._refused(target, messages, verdict)
        return messages

    def publish_json(self, channel: str, value: object, priority: object = None) -> Message:
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
        """As `publish`, for code that also works with the async MessageBus. Never waits on an implicit channel."""
        if delay is not None:
            raise self._refused_delay()
        properties = self._properties(trace_id, headers, correlation_id, ttl, dedup_key, fields)
        message = self._publish_blocking(self._message(channel, payload, priority, properties), True)
        if self._exchange.posts & _YIELD_MASK == 0:
            yield_gil(self._exchange.channel(message.channel), self._exchange.posts & _DUE_MASK == 0)
        return message

    def request(self, channel: str, payload: object = None, timeout: float | None = 5.0, **fields: object) -> Reply:
        """Publish, and wait for the value that the handler returns: `price = bus.request("prices", "ABC")`.

        Raises RequestTimeout without a reply or a subscriber, and RequestFailed if the handler failed finally.
        """
        check_request_keywords(fields)
        return self._request(self._message(channel, payload, None, self._properties_of(fields)), timeout)

    def _request(self, message: Message, timeout: float | None) -> object:
        arrived = threading.Event()
        replies: list[Message] = []

        def answer(answered: Message) -> None:
            replies.append(answered)
            arrived.set()

        # Before `expect`: a request that fails here leaves no open request behind.
        self._check_listened(message)
        graph = self._runtime.backpressure.graph
        request = self._requests.expect(message, answer)
        # As in MessageBus._request: the wait of a handler for a reply is an edge of the wait graph.
        asking = graph.current_group()
        if asking is not None:
            graph.enter_request(asking, request, message.channel)
        try:
            # The event and not the list decides: `answer` appends first, so after the event the reply is there.
            if not arrived.wait(self._publish_request(message, timeout)):
                raise no_reply(message.channel, timeout)
            return reply_body(replies[0])
        finally:
            if asking is not None:
                graph.leave(asking, request)
            self._requests.forget(request)

    def _publish_request(self, message: Message, timeout_s: float | None) -> float | None:
        """Publish. The wait for a free place is a part of the time for the reply; returns what is left of it."""
        target = self._exchange.channel(message.channel)
        if self._durable is not None and self._durable.takes(target.name):
            # The commit has no timeout: a write in progress cannot be interrupted. The time for the reply begins after
            # it.
            self._durable.publish(target, message).wait()
            return timeout_s
        verdict = self._exchange.post(target, message)
        if verdict <= DUPLICATE:
            return timeout_s
        started_s = time.monotonic()
        try:
            self._refused(target, [message], verdict, timeout_s)
        except QueueFull as error:
            if timeout_s is None or time.monotonic() - started_s < timeout_s:
                raise
            # The whole time of the request is over: the caller asked for a reply, so RequestTimeout and not QueueFull.
            raise no_reply(message.channel, timeout_s) from error
        return None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - started_s))

    def _refused(self, target: Channel, messages: list[Message], verdict: int, limit_s: float | None = None) -> None:
        """Block if the channel is full and lets publishers wait, else raise."""
        if verdict == FULL and target.waits:
            self._post_blocking(target, messages, not on_a_loop(), limit_s)
        else:
            raise self._exchange.refusal(target, one_or_all(messages), verdict)

    # Queues: a message is stored until it is received and completed

    def send(self, entity: object, payload: object = None, **fields: object) -> SendResult:
        """Store a message in a queue, or in each subscription of a topic: `bus.send("invoices", body, delay=60)`.

        Returns when it is durable. `fields` are those of the envelope, and `priority`, `delay` (seconds), `message_id`,
        `durability` ("D1", "D2"), `on_duplicate` ("drop", "error").
        """
        return self._runtime.queues().send(entity, payload, fields).wait()

    def send_many(self, entity: str, payloads: Iterable[object], **fields: object) -> list[SendResult]:
        """Store several messages in one batch: all or none."""
        return self._runtime.queues().send_many(entity, payloads, fields).wait()

    def receive(
        self, entity: str, timeout: float | None = None, mode: str = PEEK_LOCK, consumer: str = ""
    ) -> Iterator[SyncReceived]:
        """Receive messages one at a time; the iteration ends when none arrives for `timeout` seconds (None: never).

            for message in bus.receive("invoices"):
                with message:
                    handle(message.body)

        The end of the `with` block completes the message; an exception in it abandons the message.
        """
        return receivers.receive_sync(self._runtime.queues(), receivers.request_for(entity, 1, mode, consumer), timeout)

    def receive_batch(
        self, entity: str, count: int = 1, timeout: float | None = None, mode: str = PEEK_LOCK, consumer: str = ""
    ) -> list[SyncReceived]:
        """Up to `count` messages, as soon as one is ready; an empty list at the timeout. 0 does not wait."""
        request = receivers.request_for(entity, count, mode, consumer)
        return receivers.receive_batch_sync(self._runtime.queues(), request, timeout)

    def receive_deferred(self, entity: str, sequences: Iterable[int]) -> list[SyncReceived]:
        """Receive deferred messages by their sequence numbers: all of them, or MessageNotFound."""
        return receivers.receive_deferred_sync(self._runtime.queues(), entity, sequences)

    def complete_many(self, messages: Iterable[SyncReceived]) -> None:
        """Complete several messages in one batch: all, or LockLost and none."""
        complete_many(self._runtime.queues(), messages).wait()

    def peek(self, entity: str, count: int = 1, from_sequence: int = 0) -> list[Message]:
        """Read messages in any state, by sequence number, without locking or changing them."""
        return self._runtime.queues().peek(entity, count, from_sequence).wait()

    def schedule(self, entity: str, payload: object, at: object, **fields: object) -> int:
        """Store a message that is not delivered before `at`: a datetime, or seconds from now.

        Returns its sequence number, for `cancel_scheduled`.
        """
        return self._runtime.queues().schedule(entity, payload, at, fields).wait()

    def cancel_scheduled(self, entity: str, *sequences: int) -> None:
        """Remove scheduled messages by their sequence numbers: all, or MessageNotFound and none."""
        self._runtime.queues().cancel(entity, sequences).wait()

    def accept_session(
        self, entity: str, session_id: str | None = None, timeout: float | None = None, consumer: str = ""
    ) -> SyncSessionReceiver:
        """Lock a session: the one with this id, or the next free one with messages.

            with bus.accept_session("orders", timeout=5) as session:
                for message in session.receive(timeout=1): ...

        At the timeout it raises SessionLocked, or SessionNotFound without an id. 0 does not wait, None waits for ever.
        """
        return receivers.accept_session_sync(self._runtime.queues(), entity, session_id, timeout, consumer)

    def relay_outbox(self, path: object, *, again: bool = False, adopt: bool = False) -> Relayed:
        """Relay the messages that transactions on your own connections left in the outbox of that database file, for
        instance after a crash. `again`: also those that the store has rejected before. `adopt`: also those that were
        meant for another store.
        """
        return self._runtime.outboxes().relay(path, again, adopt).wait()

    def create_queue(self, name: str, **settings: object) -> None:
        """Create a queue: `bus.create_queue("invoices", lock_duration=30)`.

        Idempotent for the same settings; other settings raise EntityExists.
        """
        self._runtime.queues().outside_of_transactions().create(QUEUE, name, settings).wait()

    def create_topic(self, name: str, **settings: object) -> None:
        """Create a topic; as `create_queue`."""
        self._runtime.queues().outside_of_transactions().create(TOPIC, name, settings).wait()

    def create_subscription(self, topic: str, name: str, **settings: object) -> None:
        """Create a subscription of a topic. Receive from it as `topic/Subscriptions/name`."""
        self._runtime.queues().outside_of_transactions().create_subscription(topic, name, settings).wait()

    def update_entity(self, name: str, **settings: object) -> None:
        """Change settings of a queue, topic or subscription; the others stay. Raises EntityNotFound."""
        self._runtime.queues().outside_of_transactions().update(name, settings).wait()

    def delete_entity(self, name: str) -> None:
        """Delete a queue, topic or subscription with all its messages. Raises EntityNotFound."""
        self._runtime.queues().outside_of_transactions().delete(name).wait()

    def purge(self, entity: str) -> int:
        """Remove all messages of a queue, a subscription or a dead-letter queue, in batches. Returns how many.

        Scheduled and deferred messages as well; in-flight messages and messages that are sent meanwhile stay. It cannot
        be undone. Raises EntityNotFound, and UsageError for a topic: purge its subscriptions.
        """
        queues = self._runtime.queues().outside_of_transactions()
        return walk(purge_entity(queues, checked_name(entity, "queue name")))

    @property
    def entities(self) -> SyncEntities:
        """Operations on queues, topics, subscriptions and rules. `bus.entities()` lists them."""
        return SyncEntities(self._runtime.queues())

    def dead_letter_queue(self, max_recoveries: object = DEAD_LETTER_RECOVERIES_MAX) -> SyncDeadLetterManager:
        """The dead-lettered messages of the store: list, retry, discard. `max_recoveries` limits retries of each."""
        return SyncDeadLetterManager(self._runtime.queues(), max_recoveries)

    def trace_message(self, message_id: object) -> MessageTrace:
        """The path of a message and all its copies through the store, and where it stopped and why."""
        return archive.trace(self._runtime.queues().store, message_id)

    def replay(self, channel: str, after: object = 0) -> Iterator[Message]:
        """Read again what the channel stored, as far as history has it: after a sequence number or from a datetime."""
        return archive.replay(self._runtime.queues().store, checked_name(channel), after)

    def prune_before(self, before: object, channel: str | None = None) -> int:
        """Remove messages before a datetime (or a sequence number of one channel) from replay. Returns how many.

        Messages that wait in queues and groups stay. Messages that a channel keeps for its first group are removed.
        """
        return archive.prune(self._runtime.queues().store, before, channel)

    def delete_message(self, message_id: object) -> int:
        """Remove one message from all queues and groups where it waits, and from replay. Returns from how many."""
        return archive.delete(self._runtime.queues().store, message_id)

    # SQL over messages

    def query_messages(
        self,
        sql: object,
        parameters: object = (),
        *,
        time_limit: object = QUERY_TIME_S_DEFAULT,
        rows_max: object = QUERY_ROWS_DEFAULT,
        memory_mb: object = QUERY_MEMORY_MB_DEFAULT,
    ) -> QueryResult:
        """Run a SELECT over the tables `messages`, `dead_letters`, `events` and `outgoing`; read-only.

        More rows than `rows_max` are cut off (`truncated`). Raises QueryStopped at the other limits, and QueryInvalid
        for invalid or other SQL.
        """
        return query(
            OpenStoreView(self._runtime.queues().store), sql, parameters, time_limit, rows_max, memory_mb
        ).run()

    def execute_query(self, sql: object, parameters: object = (), **limits: object) -> QueryResult:
        """The same as `query_messages`, under the name of the storage interface."""
        return query(OpenStoreView(self._runtime.queues().store), sql, parameters, **limits).run()

    # Start, stop, close

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until every message is handled, all retries included. False at the timeout.

        Does not wait for messages without a subscriber: those that a channel keeps, and those in queues.
        """
        return self._runtime.drain.wait(timeout)

    def stop(self, timeout: float | None = DRAIN_TIMEOUT_S) -> bool:
        """Stop the delivery; messages wait for `start`. False if a handler was still running at the timeout."""
        runtime = self._runtime
        # One timeout for both waits: first for the worker threads, then for async handlers.
        deadline = Deadline(timeout)
        threads_ended = runtime.executors.pause(timeout)
        return runtime.drain.wait(deadline.left_s(), runtime.executors.are_at_rest) and threads_ended

    def close(self, drain_timeout: float | None = DRAIN_TIMEOUT_S) -> None:
        """Reject new messages, wait until subscribers have handled theirs (at most `drain_timeout`), then end all work.

        Waits for in-flight messages, the backlog of groups whose handler can run, and retries that are due within 5
        seconds; on persistent channels of a durable store for in-flight messages only. None waits as long as handlers
        take. Every call returns when the bus is closed; one that Ctrl-C interrupts only stops waiting.
        """
        self._runtime.shutdown.closing.close(drain_timeout)

    def __enter__(self) -> "SyncMessageBus":
        self._runtime.registry.check_open("entered")
        self._runtime.start(None)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Close without a timeout; Ctrl-C ends the wait. After an exception in the block it waits at most 5 seconds."""
        if kind is not None:
            add_publish_hint(error)
            self.close()
            return
        # Read by the shutdown: it waits for handlers without a limit, and for the last steps only a few seconds.
        self._runtime.shutdown.is_left = True
        try:
            self.close(None)
        except BaseException:
            self._runtime.shutdown.closing.shorten(0.0)  # The close itself must not wait for handlers any longer, too.
            raise


name_unknown_keywords(SyncMessageBus)
refuse(
    SyncMessageBus,
    ASYNC_BLOCK,
    "unibus.sync.MessageBus is the bus without async: `async with` cannot open it",
    "write `with`, and call its methods without `await`; in async code use unibus.MessageBus",
)


def yield_gil(target: Channel, due: bool) -> None:
    """Release the GIL for a moment: when a bounded queue is half full, and from time to time if any message waits.

    A thread that only publishes holds the GIL for milliseconds. Without this a queue would become full although its
    handler is fast, and messages would leave the processor's cache before they are handled.
    """
    enough: i64 = target.max_size // 2 if target.max_size else _BACKLOG
    for group in target.routes:
        if group.queue.size >= enough or (due and group.queue.size):
            # Once for all groups: a waiting worker gets the GIL with the first release.
            time.sleep(0)
            return
