"""The administration API: queues, topics, subscriptions and rules as Atom documents."""
