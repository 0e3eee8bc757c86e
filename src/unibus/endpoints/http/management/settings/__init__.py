"""Handlers for settings: declared entities, rules of subscriptions, authorization rules."""
