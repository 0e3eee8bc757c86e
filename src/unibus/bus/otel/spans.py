"""Creates the spans, by the semantic conventions of OpenTelemetry for messaging.

    operation   kind        type      parent                          links
    publish     PRODUCER    send      the caller's span               the context that the message came with
    send        PRODUCER    send      the caller's span               the same
    request     CLIENT                the caller's span
    receive     CLIENT      receive   the caller's span               the producer of each message
    process     CONSUMER    process   the producer                    producer, receive, caller, the attempt before
    complete …  CLIENT      settle    the caller's span, or process   the producer

The invariant: the trace context of a message is never changed, so that a forwarded message still links to its first
publish. The span of a forwarding publish has the kind CLIENT. A message without a context gets that of its publish.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import MessageProperties

SYSTEM: Final = "unibus"
LINKS_MAX: Final = 128
"""The default limit of links that a span of OpenTelemetry keeps."""

ATTEMPTS_MAX: Final = 10_000
"""Spans of failed attempts that are kept for the link of the next attempt. Beyond it the oldest are evicted."""

_W3C: Final = TraceContextTextMapPropagator()

Attributes = dict[str, str | int]


class Spans:
    """Starts the spans of one bus. The caller ends each span."""

    def __init__(self, provider: TracerProvider | None) -> None:
        self._tracer = trace.get_tracer(SYSTEM, tracer_provider=provider)
        self.attempts = Attempts()

    def sending(self, operation: str, destination: str, messages: Sequence[Message]) -> Span:
        """A span for messages that are about to be sent; `imprint` writes its context into them."""
        known = [context for message in messages if (context := carried(message)) is not None]
        attributes = _attributes(operation, "send", destination)
        _describe(attributes, messages)
        # PRODUCER creates a context for a message. A message that has one keeps it, so forwarding it is a CLIENT span.
        kind = SpanKind.CLIENT if messages and len(known) == len(messages) else SpanKind.PRODUCER
        # A forwarded message without a span around it continues its own trace. A batch has several traces, and is the
        # child of none.
        parent = _under(known[0]) if len(messages) == 1 and known and _ambient() is None else None
        return self._start(attributes, kind, [_link(each, "creation") for each in known], parent)

    def requesting(self, message: Message) -> Span:
        attributes = _attributes("request", "", message.channel)
        _describe(attributes, [message])
        return self._start(attributes, SpanKind.CLIENT, [], None)

    def receiving(self, entity: str, messages: Sequence[Message], began_ns: int) -> Span:
        attributes = _attributes("receive", "receive", entity)
        _describe(attributes, messages)
        links = [_link(each, "producer") for message in messages if (each := carried(message)) is not None]
        return self._start(attributes, SpanKind.CLIENT, links, None, began_ns)

    def processing(
        self, message: Message, destination: str, group: str, before: Mapping[str, SpanContext | None]
    ) -> Span:
        """A span for handling one message. `before` are the spans that it links to, by their role."""
        attributes = _attributes("process", "process", destination)
        _describe(attributes, [message])
        if group:
            attributes["messaging.consumer.group.name"] = group
        if message.delivery_count > 1:
            attributes["messaging.unibus.message.delivery_count"] = message.delivery_count
        producer = carried(message)
        # Parent and link: the parent joins the trace, and the link names the role.
        followed = {"producer": producer, **before}
        links = [_link(context, name) for name, context in followed.items() if context is not None]
        return self._start(attributes, SpanKind.CONSUMER, links, None if producer is None else _under(producer))

    def settling(self, verb: str, entity: str, messages: Sequence[Message], process: SpanContext | None = None) -> Span:
        attributes = _attributes(verb, "settle", entity)
        _describe(attributes, messages)
        producers = [context for message in messages if (context := carried(message)) is not None]
        # A settlement inside of a block is the child of the current span. Outside, as in a pump, its parent is the
        # handler's span, or the producer.
        above = process or (producers[0] if len(messages) == 1 and producers else None)
        parent = _under(above) if above is not None and _ambient() is None else None
        return self._start(attributes, SpanKind.CLIENT, [_link(each, "producer") for each in producers], parent)

    def _start(
        self,
        attributes: Attributes,
        kind: SpanKind,
        links: list[Link],
        parent: Context | None,
        began_ns: int | None = None,
    ) -> Span:
        name = f"{attributes['messaging.operation.name']} {attributes['messaging.destination.name']}"
        # Cut here: the SDK would drop the first links and not the last ones.
        return self._tracer.start_span(name, parent, kind, attributes, links[:LINKS_MAX], began_ns)


class Attempts:
    """The latest span of each message that may be delivered again, by entity or group and message id: the span of the
    next attempt links to it. Bounded by ATTEMPTS_MAX."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_key: OrderedDict[tuple[str, str], SpanContext] = OrderedDict()

    def remember(self, place: str, message_id: str, context: SpanContext) -> None:
        with self._lock:
            self._by_key[place, message_id] = context
            # By the last use: the oldest attempt is the one that is least likely to be repeated.
            self._by_key.move_to_end((place, message_id))
            if len(self._by_key) > ATTEMPTS_MAX:
                self._by_key.popitem(last=False)

    def known(self, place: str, message_id: str) -> SpanContext | None:
        # Without the lock: one lookup in C, and a value that is replaced meanwhile is as good.
        return self._by_key.get((place, message_id))

    def forget(self, place: str, message_id: str) -> None:
        with self._lock:
            self._by_key.pop((place, message_id), None)


def carried(message: Message) -> SpanContext | None:
    """The trace context in the envelope, if it is valid."""
    properties = message.properties
    if properties is None or properties.traceparent is None:
        return None
    carrier = {"traceparent": properties.traceparent}
    if properties.tracestate is not None:
        carrier["tracestate"] = properties.tracestate
    # In an empty Context: for an invalid header `extract` returns it as it is, without a span.
    return _valid(trace.get_current_span(_W3C.extract(carrier, Context())).get_span_context())


def imprint(messages: Iterable[Message], span: Span) -> None:
    """Write the context of the span into messages without one.

    Copies of a message share one properties object, which must not change for all of them; so each distinct object is
    copied once.
    """
    fields = context_fields(span)
    if not fields:
        return
    # By identity: all messages exist before the first one is changed, so no id is used twice.
    made: dict[int, MessageProperties] = {}
    for message in messages:
        if carried(message) is None:
            old = message.properties
            if id(old) not in made:
                made[id(old)] = MessageProperties() if old is None else old.copy()
                made[id(old)].traceparent = fields["traceparent"]
                made[id(old)].tracestate = fields.get("tracestate")
            message.properties = made[id(old)]


def context_fields(span: Span) -> dict[str, str]:
    """The envelope fields with the span's context; empty if the span is not recorded by any provider."""
    fields: dict[str, str] = {}
    _W3C.inject(fields, trace.set_span_in_context(span, Context()))
    return fields


def failed(span: Span, error: BaseException) -> None:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    span.record_exception(error)
    span.set_attribute("error.type", name)
    # Semantic conventions, "Recording errors": error.type has the full name of the class, the status its description.
    span.set_status(Status(StatusCode.ERROR, f"{kind.__name__}: {error}"))


def refused(span: Span, kind: str, description: str) -> None:
    """Mark the span as failed if there is no exception to record."""
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, description))


def ambient() -> SpanContext | None:
    """The current span of the caller."""
    return _ambient()


def now_ns() -> int:
    return time.time_ns()


def _ambient() -> SpanContext | None:
    return _valid(trace.get_current_span().get_span_context())


def _valid(context: SpanContext) -> SpanContext | None:
    return context if context.is_valid else None


def _under(context: SpanContext) -> Context:
    return trace.set_span_in_context(trace.NonRecordingSpan(context))


def _link(context: SpanContext, what: str) -> Link:
    return Link(context, {"messaging.unibus.link": what})


def _attributes(operation: str, kind: str, destination: str) -> Attributes:
    attributes: Attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.destination.name": destination,
    }
    if kind:
        attributes["messaging.operation.type"] = kind
    return attributes


def _describe(attributes: Attributes, messages: Sequence[Message]) -> None:
    """Adds the attributes of one message, or the number of several."""
    # Conventions for messaging: the attributes of a message are set for one message only, the count for a batch.
    if len(messages) != 1:
        attributes["messaging.batch.message_count"] = len(messages)
        return
    message = messages[0]
    if message.id:
        attributes["messaging.message.id"] = message.id
    if message.correlation_id is not None:
        attributes["messaging.message.conversation_id"] = message.correlation_id
    if isinstance(message.body, (bytes, bytearray)):
        attributes["messaging.message.body.size"] = len(message.body)
