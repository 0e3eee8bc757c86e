"""Azure's administration API: queues, topics, subscriptions and rules as Atom documents, or as JSON."""
