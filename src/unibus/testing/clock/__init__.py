"""A clock that tests move by hand."""
