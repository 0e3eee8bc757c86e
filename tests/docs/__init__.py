"""The documents as tests: what a page shows has to run."""
