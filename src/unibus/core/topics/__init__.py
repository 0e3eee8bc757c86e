"""Which subscribers want a topic: exact names, byte prefixes and wildcard patterns."""
