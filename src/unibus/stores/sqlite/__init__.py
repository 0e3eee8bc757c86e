"""The journal in one SQLite file, and readers beside its owner."""
