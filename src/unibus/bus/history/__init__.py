"""What happened before: replay, trace, export and import."""
