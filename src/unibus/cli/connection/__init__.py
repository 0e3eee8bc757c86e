"""Which bus a command works on, and the one interface for stores and servers."""
