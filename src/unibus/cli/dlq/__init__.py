"""`unibus dlq`: dead-lettered messages."""
