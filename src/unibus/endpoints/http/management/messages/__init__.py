"""Handlers for messages one by one: peek, send, receive, settle, sessions, move, remove."""
