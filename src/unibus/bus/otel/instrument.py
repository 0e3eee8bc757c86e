"""Attaches tracing to the extension points of a bus: publish path, handlers, requests and queues."""

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
        raise UsageError("the bus is already traced", "call instrument once")
    spans = Spans(tracer_provider)
    # Before the look at `has_store`: a first operation on queues in another thread may open the store in between. To
    # attach twice does no harm: `wrap` finds its own handlers.
    runtime.on_store = partial(_attach_store, runtime, spans)
    if runtime.has_store():
        _attach_store(runtime, spans)
    # For new subscriptions first, then the existing ones: none falls in between.
    runtime.subscriptions.around = partial(wrap, spans)
    for subscription in runtime.subscriptions.all():
        wrap(spans, subscription.consumer)
    bus._durable = TracedChannels(spans, bus, bus._durable)
    bus._requests = TracedRequests(spans, bus._requests)


def _attach_store(runtime: BusRuntime, spans: Spans) -> None:
    """Trace the queues. A bus in memory creates its store with the first operation on a queue, and calls this then."""
    queues, durable = runtime.queues(), runtime.durable
    assert durable is not None
    queues.watcher = TracedQueues(spans, queues)
    durable.around = partial(wrap, spans)
    for consumer, entity in durable.handlers():
        wrap(spans, consumer, entity)
