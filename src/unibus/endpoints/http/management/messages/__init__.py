"""Handlers for messages: peek, send, receive, settle, sessions, move, remove."""
