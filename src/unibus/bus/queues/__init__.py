"""Durable queues: send, receive, settle, lock renewal, transactions."""
