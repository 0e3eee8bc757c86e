"""`unibus pipeline serve`: a running Spark that answers reports; its socket protocol, and the client of it."""
