"""Handlers for history: SQL, trace, replay, export, import, relay."""
