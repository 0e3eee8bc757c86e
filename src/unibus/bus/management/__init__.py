"""What operators do with a running bus, without any transport: records, and functions over an open store."""
