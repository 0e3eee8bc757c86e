"""The state of one store in memory. It changes in one way only: by applying changes (apply.py)."""
