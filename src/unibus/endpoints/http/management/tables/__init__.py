"""The operations of the management API, one row each."""
