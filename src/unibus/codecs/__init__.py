"""Foreign wire formats, each in a package of its own: bytes in, plain data out, and back.

A codec knows one format and nothing of the bus: it imports the standard library and the base modules only, does no
I/O, and reads no clock. What its data mean for queues and messages is decided by the endpoints.
"""
