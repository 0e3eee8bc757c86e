"""Two smaller interfaces besides the bus's own store: `MessageBackend` (five methods, one queue per topic) and
`SqlitePersistence` (persist, replay, delete, prune)."""
