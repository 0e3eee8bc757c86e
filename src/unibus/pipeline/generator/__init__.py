"""History that never happened, by the rules of the bus: for trials, tests and benchmarks."""
