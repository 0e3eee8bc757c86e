"""Persistent channels: a channel is a topic of the store, a consumer group is a durable subscription of it.

publish ──▶ publishing.py ──▶ store (topic ──fan-out──▶ subscriptions) ──▶ pump.py ──▶ Group.queue ──▶ handler
"""
