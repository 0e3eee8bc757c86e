"""Handlers for what happened: SQL, trace, replay, export, import, relay."""
