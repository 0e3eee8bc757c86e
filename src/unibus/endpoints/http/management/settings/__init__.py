"""Handlers for what is set: declared entities, rules of subscriptions, authorization rules."""
