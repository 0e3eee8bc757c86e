"""Operators and messages: peek, move, send, receive, replay, export, import, relay."""
