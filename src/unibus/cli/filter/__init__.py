"""`unibus filter`."""
