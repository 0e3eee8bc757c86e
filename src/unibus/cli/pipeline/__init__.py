"""`unibus pipeline`."""
