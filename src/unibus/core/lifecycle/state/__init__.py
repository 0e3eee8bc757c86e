"""The state of one store in memory, and the only way in which it changes: by applying changes."""
