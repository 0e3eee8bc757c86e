"""`unibus capture`."""
