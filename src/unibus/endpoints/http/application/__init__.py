"""The table of all operations, and the application that serves them."""
