"""The rows of a journal in SQL tables, for any engine: statements, packing, checksums, slices of a snapshot, index."""
