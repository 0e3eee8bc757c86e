"""A warm Spark that answers: the server, its door for our own command line, and who asks there."""
