"""Optional tracing with OpenTelemetry: the entry point `instrument`.

Tracing uses the extension points of a bus and nothing else: it wraps the publish path (publish_path.py), the handlers,
the requests, and the operations on queues. A bus that is not instrumented executes no additional code for it, and
OpenTelemetry is not imported.
"""

from typing import TYPE_CHECKING, TypeVar

from unibus.bus.api.bus_operations import BusOperations
from unibus.errors import ExtraMissing, UsageError
from unibus.extras import install_extra

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

AnyBus = TypeVar("AnyBus", bound=BusOperations)


def instrument(bus: AnyBus, tracer_provider: "TracerProvider | None" = None) -> AnyBus:
    """Trace every message of this bus from now on; returns the bus. Existing subscriptions are traced too.

    Spans go to the given provider, or to the global one of the program.
    """
    try:
        from unibus.bus.otel.instrument import attach
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ExtraMissing("tracing needs OpenTelemetry", install_extra("otel")) from error
    if not isinstance(bus, BusOperations):
        raise UsageError(f"instrument needs a bus, not a {type(bus).__name__}")
    if bus._workers is not None:
        raise UsageError("a bus with a backend cannot be traced", "trace the backend, or use a bus without a backend")
    attach(bus, tracer_provider)
    return bus
