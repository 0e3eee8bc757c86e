"""Operations for operators of a running bus, independent of any transport: records, and functions on an open store."""
