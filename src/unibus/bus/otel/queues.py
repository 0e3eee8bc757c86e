"""Adds spans to the operations on queues: send, receive, process and settle."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import Token
from functools import partial
from typing import TypeVar, cast

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext

from unibus.bus.otel.spans import Spans, ambient, carried, context_fields, failed, imprint, now_ns
from unibus.bus.queues.operations import Queues
from unibus.bus.queues.received import DeliveredMessage, Received, SyncReceived
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.message_properties import HeaderValue, MessageProperties
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import ABANDON, COMPLETE, SETTLEMENTS, Command, SendResult, Settle
from unibus.core.lifecycle.envelope import message_of
from unibus.stores.seam.pending import Pending

T = TypeVar("T")


class TracedQueues:
    """The Interceptor of the queues of one bus."""

    def __init__(self, spans: Spans, queues: Queues) -> None:
        self._spans = spans
        self._queues = queues

    # Sending

    def send(self, entity: object, payload: object, fields: dict[str, object]) -> Pending[SendResult]:
        if isinstance(entity, Message):
            span = self._spans.sending("send", entity.channel, [entity])
            message = entity.copy()  # The caller's message keeps its own trace context, or none.
            imprint([message], span)
            return _watched(span, lambda: self._queues.send_now(message, payload, fields))
        # The message itself does not exist yet. The fields get the context of the span, and `send_now` makes the
        # message from them.
        span = self._spans.sending("send", str(entity), [_sketch(payload, fields)])
        _carry(fields, span)
        return _watched(span, lambda: self._queues.send_now(entity, payload, fields), _set_id)

    def send_many(
        self, entity: str, payloads: Iterable[object], fields: dict[str, object]
    ) -> Pending[list[SendResult]]:
        # An iterator can be read once, and the span needs the count. A str is passed on, for the error of the queues.
        given = payloads if isinstance(payloads, (str, bytes)) else list(payloads)
        sketches = [_sketch(each, fields) for each in given] if isinstance(given, list) else []
        span = self._spans.sending("send", str(entity), sketches)
        _carry(fields, span)
        return _watched(span, lambda: self._queues.send_many_now(entity, given, fields))

    # Receiving

    async def receive(self, entity: str, claiming: Awaitable[list[Claimed]]) -> list[Received]:
        # The span is made after the claim, with the time before it: only then the messages to link are known, and an
        # empty receive makes no span.
        began_ns = now_ns()
        try:
            claimed = await claiming
        # Not a cancellation: the receiver went away, and nothing failed.
        except Exception as error:
            self._not_received(entity, began_ns, error)
            raise
        received = [TracedReceived(self._queues, each, self._spans) for each in claimed]
        self._received(entity, began_ns, [(each.traced, each.message) for each in received])
        return cast("list[Received]", received)

    def receive_sync(self, entity: str, claiming: Callable[[], list[Claimed]]) -> list[SyncReceived]:
        began_ns = now_ns()
        try:
            claimed = claiming()
        except Exception as error:
            self._not_received(entity, began_ns, error)
            raise
        received = [TracedSyncReceived(self._queues, each, self._spans) for each in claimed]
        self._received(entity, began_ns, [(each.traced, each.message) for each in received])
        return cast("list[SyncReceived]", received)

    def _received(self, entity: str, began_ns: int, received: "list[tuple[Handling, Message]]") -> None:
        """One span for the whole batch; none for a receive that timed out empty."""
        if not received:
            return
        span = self._spans.receiving(entity, [message for _, message in received], began_ns)
        for traced, _ in received:
            traced.receive = span.get_span_context()
        span.end()

    def _not_received(self, entity: str, began_ns: int, error: Exception) -> None:
        span = self._spans.receiving(entity, [], began_ns)
        failed(span, error)
        span.end()

    # Settling

    def settle(self, claimed: Claimed, command: Settle) -> Pending[list[object]]:
        """Settle a message of a subscription pump, after its handler. Without a handler's span there is none here."""
        message_id = claimed.who.message_id
        # The pump settles outside of the handler's call, so the handler's span is not the current one here; it is found
        # by the message.
        process = self._spans.attempts.known(claimed.entity, message_id)
        if process is None:
            return self._queues.store.apply([command])
        if command.verb != ABANDON:  # An abandoned message is redelivered: the next attempt links to this one.
            self._spans.attempts.forget(claimed.entity, message_id)
        # Only for the attributes of the span: the body is not decoded for it.
        message = restored(message_id, claimed.entity, None, 0, None)
        span = self._spans.settling(SETTLEMENTS[command.verb], claimed.entity, [message], process)
        return _watched(span, lambda: self._queues.store.apply([command]))

    # For protocol servers

    def watch_send(
        self, entity: str, messages: list[Message], send: Callable[[list[Message]], Pending[list[object]]]
    ) -> Pending[list[object]]:
        span = self._spans.sending("send", entity, messages)
        # The given messages belong to the server, which may send them again after an error: without the context of this
        # span.
        copies = [message.copy() for message in messages]
        imprint(copies, span)
        return _watched(span, lambda: send(copies))

    def watch_settle(
        self, verb: int, entity: str, message_id: str, settle: Callable[[], Pending[list[object]]]
    ) -> Pending[list[object]]:
        message = restored(message_id, entity, None, 0, None)
        span = self._spans.settling(SETTLEMENTS[verb], entity, [message] if message_id else [])
        return _watched(span, settle)

    async def watch_claim(self, entity: str, claiming: Awaitable[list[Claimed]]) -> list[Claimed]:
        began_ns = now_ns()
        try:
            claimed = await claiming
        except Exception as error:
            self._not_received(entity, began_ns, error)
            raise
        if claimed:
            self._spans.receiving(entity, [message_of(each) for each in claimed], began_ns).end()
        return claimed

    def complete_many(self, commands: list[Command], messages: list[Message]) -> Pending[None]:
        # One span for the batch, which may be of several entities.
        entities = {command.entity for command in commands if isinstance(command, Settle)}
        span = self._spans.settling(SETTLEMENTS[COMPLETE], ", ".join(sorted(entities)), messages)
        return _watched(span, lambda: self._queues.submit_many(commands))


class Handling:
    """The tracing state of one in-flight message."""

    def __init__(self, spans: Spans, delivery: DeliveredMessage) -> None:
        self._spans = spans
        self._message = delivery.message
        self._entity = delivery.entity
        self.receive: SpanContext | None = None
        self._span: Span | None = None
        self._token: Token[Context] | None = None

    def begin(self) -> None:
        """Start the process span at the entry of the message's block: spans inside of it become its children."""
        attempts, message_id = self._spans.attempts, self._message.id
        around = ambient()
        before = {"receive": self.receive, "earlier attempt": attempts.known(self._entity, message_id)}
        # With a producer the span is its child, so the caller's own span is only linked. Without one it is the parent
        # already.
        if carried(self._message) is not None:
            before["caller"] = around
        span = self._spans.processing(self._message, self._entity, "", before)
        attempts.remember(self._entity, message_id, span.get_span_context())
        self._span = span
        # In the task or thread that enters the block, which is the one that leaves it: `detach` needs the same context.
        self._token = contexts.attach(trace.set_span_in_context(span))

    def fail(self, error: BaseException | None) -> None:
        if error is not None and self._span is not None:
            failed(self._span, error)

    def end(self) -> None:
        # Set back: a second `end` does nothing.
        if self._span is not None:
            self._span.end()
            self._span = None
        if self._token is not None:
            contexts.detach(self._token)
            self._token = None

    def settle(self, command: Settle, settle: Callable[[], Pending[None]]) -> Pending[None]:
        # As in TracedQueues.settle: an abandoned message is redelivered, and the next attempt links to this one.
        if command.verb != ABANDON:
            self._spans.attempts.forget(self._entity, self._message.id)
        span = self._spans.settling(SETTLEMENTS[command.verb], self._entity, [self._message])
        return _watched(span, settle)


class TracedReceived(Received):
    def __init__(self, queues: Queues, claimed: Claimed, spans: Spans) -> None:
        super().__init__(queues, claimed)
        self.traced = Handling(spans, self)

    def _settle(self, command: Settle, properties: Mapping[str, HeaderValue] | None) -> Pending[None]:
        # `super` with its arguments: inside of a lambda the short form has no first argument.
        return self.traced.settle(command, lambda: super(TracedReceived, self)._settle(command, properties))

    async def __aenter__(self) -> Received:
        self.traced.begin()
        return await super().__aenter__()

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        # Before the settlement: the error of the block is recorded first, and that of the settlement, if any, after it.
        self.traced.fail(error)
        try:
            await super().__aexit__(kind, error, traceback)
        except BaseException as settle_error:
            self.traced.fail(settle_error)
            raise
        finally:
            self.traced.end()


class TracedSyncReceived(SyncReceived):
    def __init__(self, queues: Queues, claimed: Claimed, spans: Spans) -> None:
        super().__init__(queues, claimed)
        self.traced = Handling(spans, self)

    def _settle(self, command: Settle, properties: Mapping[str, HeaderValue] | None) -> Pending[None]:
        return self.traced.settle(command, lambda: super(TracedSyncReceived, self)._settle(command, properties))

    def __enter__(self) -> SyncReceived:
        self.traced.begin()
        return super().__enter__()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.traced.fail(error)
        try:
            super().__exit__(kind, error, traceback)
        except BaseException as settle_error:
            self.traced.fail(settle_error)
            raise
        finally:
            self.traced.end()


def _sketch(payload: object, fields: dict[str, object]) -> Message:
    """A stand-in with what is known before the message is created: payload, trace context, correlation id."""
    properties = MessageProperties()
    for name in ("traceparent", "tracestate", "correlation_id"):
        value = fields.get(name)
        setattr(properties, name, value if isinstance(value, str) else None)
    return restored("", "", payload, 0, properties)


def _carry(fields: dict[str, object], span: Span) -> None:
    if carried(_sketch(None, fields)) is None:
        fields.update(context_fields(span))


def _set_id(span: Span, results: object) -> None:
    result = results[0] if isinstance(results, list) else results
    if isinstance(result, SendResult):
        span.set_attribute("messaging.message.id", result.id)


def _watched(
    span: Span, action: Callable[[], Pending[T]], describe: Callable[[Span, object], None] | None = None
) -> Pending[T]:
    """Run the action; the span ends with its result, or with an error that it raises directly."""
    try:
        pending = action()
    except BaseException as error:
        failed(span, error)
        span.end()
        raise
    if describe is not None:
        # Before `on_done`: the attributes must be set before the span ends.
        pending = pending.tap(partial(_described, span, describe))
    pending.on_done(partial(_ended, span))
    return pending


def _described(span: Span, describe: Callable[[Span, object], None], pending: Pending[T]) -> None:
    if pending.error is None:
        describe(span, pending.value)


def _ended(span: Span, pending: Pending[object]) -> None:
    if pending.error is not None:
        failed(span, pending.error)
    span.end()
