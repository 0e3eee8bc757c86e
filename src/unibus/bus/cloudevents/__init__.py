"""Converts messages to CloudEvents 1.0 and back."""
