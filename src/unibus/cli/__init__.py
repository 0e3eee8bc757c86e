"""The command line: one file per command, brought together in `main`. It holds no rule of its own."""
