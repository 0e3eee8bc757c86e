"""The transactional outbox in the user's own database, and the relay that stores its messages exactly once."""
