"""Wire formats of other systems, one package for each: bytes in, plain data out, and back.

A codec knows one format and nothing of the bus: it imports the standard library and the base modules only, does no I/O,
and reads no clock. The endpoints decide what its data means for queues and messages.
"""
