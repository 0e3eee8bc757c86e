"""Tracing with OpenTelemetry, for those who ask for it.

`instrument` puts itself where a bus has a place for it, and nowhere else: around the ways of a publish (ways.py), the
handlers as they are subscribed, the requests, and the durable verbs. A bus that was not instrumented looks at nothing
more than before, and OpenTelemetry is not even imported.
"""

from typing import TYPE_CHECKING, TypeVar

from unibus.bus.api.bus_operations import BusOperations
from unibus.errors import ExtraMissing, UsageError

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

AnyBus = TypeVar("AnyBus", bound=BusOperations)


def instrument(bus: AnyBus, tracer_provider: "TracerProvider | None" = None) -> AnyBus:
    """Trace every message of this bus from now on, and give it back. Handlers that are subscribed already count too.

    Spans go to the given provider, or to the one that is set for the whole program.
    """
    try:
        from unibus.bus.otel.instrument import attach
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ExtraMissing("tracing needs OpenTelemetry", "install the extra: pip install 'unibus[otel]'") from error
    if not isinstance(bus, BusOperations):
        raise UsageError(f"a bus is instrumented, not a {type(bus).__name__}")
    if bus._workers is not None:
        raise UsageError("a bus on a backend cannot be traced", "trace the backend, or use the bus in memory")
    attach(bus, tracer_provider)
    return bus
