"""Which subscribers match a topic: exact names, byte prefixes and wildcard patterns."""
