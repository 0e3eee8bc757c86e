"""The figures that unibus claims, each measured beside its peers and beside the limit of the machine.

One file per benchmark. `python -m benchmarks` lists them; a figure in the documents names the one that prints it.
Nothing here is shipped, and nothing in `src` knows of it.
"""
