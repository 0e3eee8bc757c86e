"""Messages as bytes and back, without loss."""
