"""The management API under `/unibus/v1`: everything that the command line, the page and operators' own tools do."""
