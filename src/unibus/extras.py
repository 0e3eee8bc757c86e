"""The hint of an error about a package that is missing: how to install the extra that brings it.

One text for all of them, because there is no release yet: `pip install 'unibus[server]'` would install nothing of ours,
or a package of another project. When there is one, this is the line to change.
"""


def install_extra(extra: str) -> str:
    """The hint that names the extra, and the command that installs it."""
    return f"in the checkout of unibus: pip install '.[{extra}]'"
