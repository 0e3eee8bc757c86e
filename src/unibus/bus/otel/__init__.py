"""Tracing with OpenTelemetry, for a bus that asks for it."""
