"""Commands through a running server."""
