"""Persistent channels: a channel is a topic of the store, a consumer group a durable subscription of it."""
