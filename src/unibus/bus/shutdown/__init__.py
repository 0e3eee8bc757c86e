"""Closing a bus: the steps in order, what is waited for, and what is reported as left."""
