"""Publish and subscribe in memory: channels, consumer groups, admission and backpressure."""
