"""Bulk operations as jobs of a server, which continue when the caller disconnects."""
