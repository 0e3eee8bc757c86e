"""Optional tracing with OpenTelemetry."""
