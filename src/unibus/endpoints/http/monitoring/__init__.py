"""Health, metrics, the API documentation, and the console."""
