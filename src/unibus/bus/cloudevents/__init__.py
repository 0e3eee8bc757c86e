"""CloudEvents 1.0 in and out."""
