"""Subscriptions of handlers to channels and patterns, request and reply, and waiting until all is handled."""
