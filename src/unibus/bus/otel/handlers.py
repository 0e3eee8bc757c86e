"""Wraps handlers with a span around each call, and requests with a span from the send to the reply."""

from collections.abc import Awaitable
from contextvars import Token
from typing import cast

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from unibus.bus.execution.handlers import is_async
from unibus.bus.otel.spans import Spans, failed, refused
from unibus.bus.pubsub.delivery import TAKES_MESSAGE, call
from unibus.bus.pubsub.exchange import REPLY_PREFIX
from unibus.bus.pubsub.group import Consumer
from unibus.bus.subscriptions.requests import Answer, OpenRequest, Requests
from unibus.core.envelope.message import Message


def wrap(spans: Spans, consumer: Consumer, entity: str = "") -> None:
    """Run the handler of a consumer inside of a span from now on. `entity` is its durable subscription, if any.

    The consumer may be running in another thread, which may see the new handler before the new shape. Until then it
    calls the new handler with the arguments of the old one, which `TracedHandler` passes on.
    """
    # Wrapped already: `attach` wraps the existing handlers, and one that is subscribed meanwhile may be seen twice.
    if isinstance(consumer.handler, TracedHandler):
        return
    # A copy for the inner call: it keeps the shape of the arguments and the conversion of the body of the original
    # handler.
    inner = Consumer(int(consumer.id), consumer.group, consumer.handler, int(consumer.shape))
    inner.convert = consumer.convert
    kind = TracedAsyncHandler if is_async(consumer.handler) else TracedHandler
    # The handler before the shape: see the docstring for a thread that sees only the first of the two.
    consumer.handler = kind(spans, inner, entity)
    consumer.shape = TAKES_MESSAGE


class TracedHandler:
    """Replaces a handler, and is equal to it, so that unsubscribing by the original handler finds this one."""

    def __init__(self, spans: Spans, inner: Consumer, entity: str) -> None:
        self._spans = spans
        self._inner = inner
        self._entity = entity
        self._place = entity or inner.group.name

    def __eq__(self, other: object) -> bool:
        return other is self or bool(self._inner.handler == other)

    def __hash__(self) -> int:
        return hash(self._inner.handler)

    def __call__(self, *arguments: object) -> object:
        message = arguments[0] if len(arguments) == 1 else None
        # Replies are part of the span of their request. Other arguments: a call in the old shape (see `wrap`).
        if not isinstance(message, Message) or message.channel.startswith(REPLY_PREFIX):
            return self._inner.handler(*arguments)
        return self._traced(message)

    def _traced(self, message: Message) -> object:
        span = self._begin(message)
        # The current span of the handler: publishes and log lines in it become part of its trace.
        token = contexts.attach(trace.set_span_in_context(span))
        try:
            return call(self._inner, message)
        except BaseException as error:
            self._failed(span, message, error)
            raise
        finally:
            # Also after an error: a worker thread runs other handlers afterwards, which must not inherit this span.
            contexts.detach(token)
            span.end()

    def _begin(self, message: Message) -> Span:
        attempts = self._spans.attempts
        # At a first delivery there is none: most messages need no lookup.
        earlier = attempts.known(self._place, message.id) if message.delivery_count > 1 else None
        group = self._inner.group.name
        span = self._spans.processing(message, message.channel, group, {"earlier attempt": earlier})
        if self._entity:
            attempts.remember(self._place, message.id, span.get_span_context())  # The settlement links to it.
        # In memory nothing settles the message later, so its entry is removed with the next attempt; one that fails
        # again adds it again.
        elif earlier is not None:
            attempts.forget(self._place, message.id)
        return span

    def _failed(self, span: Span, message: Message, error: BaseException) -> None:
        failed(span, error)
        self._spans.attempts.remember(self._place, message.id, span.get_span_context())


class TracedAsyncHandler(TracedHandler):
    def _traced(self, message: Message) -> object:
        return self._awaited(message)

    async def _awaited(self, message: Message) -> object:
        span = self._begin(message)
        token = contexts.attach(trace.set_span_in_context(span))
        try:
            return await cast("Awaitable[object]", call(self._inner, message))
        except BaseException as error:
            self._failed(span, message, error)
            raise
        finally:
            contexts.detach(token)
            span.end()


class TracedRequests(Requests):
    """Adds spans to the requests of a bus. `inner` keeps all state of the open requests."""

    def __init__(self, spans: Spans, inner: Requests) -> None:
        # Without super().__init__(): the bus has one inbox for replies, and it is that of `inner`.
        self._spans = spans
        self._inner = inner
        self._begun: dict[OpenRequest, tuple[Span, Token[Context], list[Message]]] = {}

    def expect(self, message: Message, answer: Answer) -> OpenRequest:
        replies: list[Message] = []

        def record_reply(reply: Message) -> None:
            replies.append(reply)
            answer(reply)

        # Before `expect` and the publish: the publish inside of the request becomes its child.
        span = self._spans.requesting(message)
        request = self._inner.expect(message, record_reply)
        token = contexts.attach(trace.set_span_in_context(span))
        self._begun[request] = (span, token, replies)
        return request

    def forget(self, request: OpenRequest) -> None:
        # First: the request is closed before its span is.
        self._inner.forget(request)
        begun = self._begun.pop(request, None)
        if begun is None:
            return  # The request was sent before the bus was traced.
        span, token, replies = begun
        contexts.detach(token)
        reason = replies[0].headers.get("error_reason") if replies else None
        if not replies:
            refused(span, "no_reply", "no reply was received")
        elif reason is not None:
            refused(span, str(reason), str(replies[0].headers.get("error_text")))
        span.end()
