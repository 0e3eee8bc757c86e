"""`unibus demo`."""
