"""Connections: listening ports, TLS, protocol detection by the first byte, HTTP/1.1, limits and deadlines."""
