"""Interfaces that programs written for the earlier buses expect: backends with five verbs, SqlitePersistence."""
