"""A traced bus, put together: what knows OpenTelemetry takes the places that a bus has for it."""

from functools import partial

from opentelemetry.trace import TracerProvider

from unibus.bus.api.bus_operations import BusOperations
from unibus.bus.api.runtime import BusRuntime
from unibus.bus.otel.channels import TracedChannels
from unibus.bus.otel.handlers import TracedRequests, wrap
from unibus.bus.otel.queues import TracedQueues
from unibus.bus.otel.spans import Spans
from unibus.errors import UsageError


def attach(bus: BusOperations, tracer_provider: TracerProvider | None) -> None:
    runtime = bus._runtime
    if runtime.on_store is not None:
        raise UsageError("the bus is traced already", "instrument it once")
    spans = Spans(tracer_provider)
    runtime.on_store = partial(_attach_store, runtime, spans)
    if runtime.has_store():
        _attach_store(runtime, spans)
    runtime.subscriptions.around = partial(wrap, spans)
    for subscription in runtime.subscriptions.all():
        wrap(spans, subscription.consumer)
    bus._durable = TracedChannels(spans, bus, bus._durable)
    bus._requests = TracedRequests(spans, bus._requests)


def _attach_store(runtime: BusRuntime, spans: Spans) -> None:
    """A bus in memory has a store too, from its first durable verb on."""
    queues, durable = runtime.queues(), runtime.durable
    assert durable is not None
    queues.watcher = TracedQueues(spans, queues)
    durable.around = partial(wrap, spans)
    for consumer, entity in durable.handlers():
        wrap(spans, consumer, entity)
