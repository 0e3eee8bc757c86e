"""Synthetic history by the rules of the bus: for trials, tests and benchmarks."""
