# mypyc: compiled
"""The sync face: the same names for programs without an event loop. It stands on the exchange, not on a loop."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mypy_extensions import i64, mypyc_attr

from unibus.bus.api.bus_operations import BusOperations, one_or_all, several
from unibus.bus.api.message_bus import DRAIN_TIMEOUT_S, no_reply, on_a_loop
from unibus.bus.dead_letters.dead_letter_manager import SyncDeadLetterManager
from unibus.bus.entities.entities import SyncEntities
from unibus.bus.history import archive
from unibus.bus.history.trace import MessageTrace
from unibus.bus.names import checked_name
from unibus.bus.outbox.relay_route import Relayed
from unibus.bus.pubsub.channel import DUPLICATE, FULL, POLICY_BLOCK, Channel
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
from unibus.limits import (
    DEAD_LETTER_RECOVERIES_MAX,
    QUERY_MEMORY_MB_DEFAULT,
    QUERY_ROWS_DEFAULT,
    QUERY_TIME_S_DEFAULT,
)
from unibus.stores.query import query
from unibus.stores.query.result import QueryResult

# How often a publisher looks whether it should give way: a fraction of the default bound.
_GIVE_WAY_MASK: Final = 127
# How often it gives way if anything waits at all: so many messages fit into the cache of a processor.
_DUE_MASK: Final = 4095
_BACKLOG: Final = 4096


@mypyc_attr(allow_interpreted_subclasses=True)
class SyncMessageBus(BusOperations):
    """A bus for synchronous programs; async handlers run on a loop thread of its own.

    with MessageBus() as bus:
        bus.subscribe("orders", handler)
        bus.publish("orders", {"id": 1})
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
        """Publish to a channel, or publish a Message; safe from any thread. See the async face for the promises."""
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
        if verdict > DUPLICATE:
            self._refused(target, [message], verdict)
        elif exchange.posts & _GIVE_WAY_MASK == 0:
            give_way(target, exchange.posts & _DUE_MASK == 0)
        return message

    def publish_many(
        self, channel: str, payloads: Iterable[object], priority: object = None, **fields: object
    ) -> list[Message]:
        """Publish several payloads to one channel: all of them are admitted, or none and an error."""
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
        """The same as publish, for code that is shared with the async face."""
        return self.publish(
            channel, payload, priority, trace_id, headers, correlation_id, ttl, dedup_key, fields=fields, delay=delay
        )

    def request(self, channel: str, payload: object = None, timeout: float | None = 5.0, **fields: object) -> Reply:
        """Publish, and wait for what the handler returns. RequestTimeout, or RequestFailed if the handler gave up."""
        return self._request(self._message(channel, payload, None, self._properties_of(fields)), timeout)

    def _request(self, message: Message, timeout: float | None) -> object:
        arrived = threading.Event()
        replies: list[Message] = []

        def answer(answered: Message) -> None:
            replies.append(answered)
            arrived.set()

        self._check_listened(message)
        request = self._requests.expect(message, answer)
        try:
            self.publish(message)
            if not arrived.wait(timeout):
                raise no_reply(message.channel, timeout)
            return reply_body(replies[0])
        finally:
            self._requests.forget(request)

    def _refused(self, target: Channel, messages: list[Message], verdict: int) -> None:
        """Wait for room where the channel says so, else raise."""
        if verdict == FULL and target.policy == POLICY_BLOCK:
            self._post_blocking(target, messages, not on_a_loop())
        else:
            raise self._exchange.refusal(target, one_or_all(messages), verdict)

    # Queues. The async face says what each promises.

    def send(self, entity: object, payload: object = None, **fields: object) -> SendResult:
        return self._runtime.queues().send(entity, payload, fields).wait()

    def send_many(self, entity: str, payloads: Iterable[object], **fields: object) -> list[SendResult]:
        return self._runtime.queues().send_many(entity, payloads, fields).wait()

    def receive(
        self, entity: str, timeout: float | None = None, mode: str = PEEK_LOCK, consumer: str = ""
    ) -> Iterator[SyncReceived]:
        return receivers.receive_sync(self._runtime.queues(), receivers.request_for(entity, 1, mode, consumer), timeout)

    def receive_batch(
        self, entity: str, count: int = 1, timeout: float | None = None, mode: str = PEEK_LOCK, consumer: str = ""
    ) -> list[SyncReceived]:
        request = receivers.request_for(entity, count, mode, consumer)
        return receivers.receive_batch_sync(self._runtime.queues(), request, timeout)

    def receive_deferred(self, entity: str, sequences: Iterable[int]) -> list[SyncReceived]:
        return receivers.receive_deferred_sync(self._runtime.queues(), entity, sequences)

    def complete_many(self, messages: Iterable[SyncReceived]) -> None:
        complete_many(self._runtime.queues(), messages).wait()

    def peek(self, entity: str, count: int = 1, from_sequence: int = 0) -> list[Message]:
        return self._runtime.queues().peek(entity, count, from_sequence).wait()

    def schedule(self, entity: str, payload: object, at: object, **fields: object) -> int:
        return self._runtime.queues().schedule(entity, payload, at, fields).wait()

    def cancel_scheduled(self, entity: str, *sequences: int) -> None:
        self._runtime.queues().cancel(entity, sequences).wait()

    def accept_session(
        self, entity: str, session_id: str | None = None, timeout: float | None = None, consumer: str = ""
    ) -> SyncSessionReceiver:
        return receivers.accept_session_sync(self._runtime.queues(), entity, session_id, timeout, consumer)

    def relay_outbox(self, path: object, *, again: bool = False, adopt: bool = False) -> Relayed:
        return self._runtime.outboxes().relay(path, again, adopt).wait()

    def create_queue(self, name: str, **settings: object) -> None:
        self._runtime.queues().outside_of_transactions().create(QUEUE, name, settings).wait()

    def create_topic(self, name: str, **settings: object) -> None:
        self._runtime.queues().outside_of_transactions().create(TOPIC, name, settings).wait()

    def create_subscription(self, topic: str, name: str, **settings: object) -> None:
        self._runtime.queues().outside_of_transactions().create_subscription(topic, name, settings).wait()

    def update_entity(self, name: str, **settings: object) -> None:
        self._runtime.queues().outside_of_transactions().update(name, settings).wait()

    def delete_entity(self, name: str) -> None:
        self._runtime.queues().outside_of_transactions().delete(name).wait()

    @property
    def entities(self) -> SyncEntities:
        return SyncEntities(self._runtime.queues())

    def dead_letter_queue(self, max_recoveries: object = DEAD_LETTER_RECOVERIES_MAX) -> SyncDeadLetterManager:
        return SyncDeadLetterManager(self._runtime.queues(), max_recoveries)

    def trace_message(self, message_id: object) -> MessageTrace:
        return archive.trace(self._runtime.queues().store, message_id)

    def replay(self, channel: str, after: object = 0) -> Iterator[Message]:
        return archive.replay(self._runtime.queues().store, checked_name(channel), after)

    def prune_before(self, before: object, channel: str | None = None) -> int:
        return archive.prune(self._runtime.queues().store, before, channel)

    def delete_message(self, message_id: object) -> int:
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
        """The rows of a SELECT over `messages`, `dead_letters`, `events` and `outgoing`. It only reads.

        Beyond `rows_max` the result is `truncated`; QueryStopped at the other limits, QueryInvalid for other SQL.
        """
        return query(self._runtime.queues().store, sql, parameters, time_limit, rows_max, memory_mb).run()

    def execute_query(self, sql: object, parameters: object = (), **limits: object) -> QueryResult:
        """The same as `query_messages`, by the name that it has in the storage interface."""
        return query(self._runtime.queues().store, sql, parameters, **limits).run()

    # Life

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until every message was handled, retries included, however late they are. False at the time-out."""
        return self._runtime.drain.wait(timeout)

    def stop(self, timeout: float | None = DRAIN_TIMEOUT_S) -> bool:
        """Stop handing over; messages wait for `start`. False if a handler was still busy at the time-out."""
        runtime = self._runtime
        deadline = Deadline(timeout)
        threads_ended = runtime.places.pause(timeout)
        return runtime.drain.wait(deadline.left_s(), runtime.places.are_at_rest) and threads_ended

    def close(self, drain_timeout: float | None = DRAIN_TIMEOUT_S) -> None:
        """Refuse new messages, wait for those that subscribers have to handle (at most so long), then end all workers.

        It returns when the bus is closed, for all who call it. `MessageBus.close` says what is waited for, and what
        becomes of a call that is interrupted. None waits as long as handlers take.
        """
        self._runtime.shutdown.closing.close(drain_timeout)

    def __enter__(self) -> "SyncMessageBus":
        self._runtime.registry.check_open("entered")
        self._runtime.start(None)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """`close` without a time-out, which Ctrl-C bounds; at most 5 seconds after an exception."""
        if kind is not None:
            self.close()
            return
        self._runtime.shutdown.is_left = True
        try:
            self.close(None)
        except BaseException:
            self._runtime.shutdown.closing.shorten(0.0)  # Ctrl-C ends the wait for handlers, not only ours for it.
            raise


def give_way(target: Channel, due: bool) -> None:
    """Let a worker have the interpreter for a moment: when a bounded queue is half full, and now and then anyway.

    A thread that only publishes keeps it for milliseconds. A queue would run full although its handler is quick, and
    messages would leave the processor's cache before they are handled.
    """
    enough: i64 = target.max_size // 2 if target.max_size else _BACKLOG
    for group in target.routes:
        if group.queue.size >= enough or (due and group.queue.size):
            time.sleep(0)
            return
