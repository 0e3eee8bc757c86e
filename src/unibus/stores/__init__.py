"""Stores: where messages are kept, and when a call is acknowledged.

schemes    the table of store schemes         opening    from a URL to an open store
seam       the protocols Store and Journal    engine     the embedded store: decide, write, acknowledge
sqlite     journal in one SQLite file         jsonfile   journal in a folder of JSON files
memory     journal in memory                  files      owner's lock, private modes, reserve, disk access
query      SQL in a sandbox                   inspection `unibus check` and `unibus repair`
"""
