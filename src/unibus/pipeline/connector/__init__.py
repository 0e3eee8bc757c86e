"""`format("unibus")`: history as a table and as a stream (source.py), rows as messages (sink.py)."""
