"""Commands on servers and their settings."""
