"""The message: its fields, properties, payload, priority, id and time."""
