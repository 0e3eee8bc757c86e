"""The protocols between the bus and its stores, and between an embedded store and its journal."""
