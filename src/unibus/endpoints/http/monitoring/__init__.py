"""Health, metrics and the server's own documents."""
