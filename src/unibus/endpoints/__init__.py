"""Network endpoints: bytes of other programs become calls of the broker operations, and their results become bytes.

An endpoint holds no rule of its own. It parses, asks `core/access` whether the caller may, calls `bus/broker.py`, and
formats. Nothing in the package is needed to use a bus inside a process.
"""
