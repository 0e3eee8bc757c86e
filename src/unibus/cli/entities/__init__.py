"""Commands on entities and access rules."""
