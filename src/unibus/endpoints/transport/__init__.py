"""Connections: ports, TLS, the first byte, HTTP/1.1, limits and deadlines."""
