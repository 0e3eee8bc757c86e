"""Bodies as the type that a handler or a receiver asks for."""
