"""The journal in a folder of JSON files that people can read."""
