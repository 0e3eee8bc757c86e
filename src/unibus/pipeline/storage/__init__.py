"""The tables of a lake and their files."""
