"""Operators and history: events, traces, SQL."""
