"""Commands on messages."""
