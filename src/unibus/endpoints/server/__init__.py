"""The server process: its start, its shutdown, and the recovery of a failed store."""
