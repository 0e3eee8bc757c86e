"""Queues, topics, subscriptions and rules: created, changed, described in files, and who may use them."""
