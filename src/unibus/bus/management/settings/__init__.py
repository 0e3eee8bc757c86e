"""Operators and settings: entities, access rules, declared files, the status of a server."""
