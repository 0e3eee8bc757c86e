"""The management API under `/unibus/v1`, for the command line, the console and operators' own tools."""
