"""The number of connections that the limit of open files (RLIMIT_NOFILE) allows: each takes one, the store some more.

A usual soft limit is 1,024 files, with a much higher hard limit, up to which a process may raise its soft limit. A
server does that at its start, as far as `connections_max` needs it. If the hard limit is lower, fewer connections are
accepted: a refused connection is better than a store that cannot open a file. Windows has no such limit.
"""

import sys
from typing import Final

if sys.platform != "win32":
    import resource

RESERVED: Final = 128
"""Files for everything but connections: the store, the ports, the logs."""


def raise_limit(connections: int) -> None:
    """Raise the soft limit so that this process can have so many connections, up to the hard limit."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return  # A kernel may refuse less than its hard limit. `connections_allowed` reads the effective limit.


def connections_allowed(wanted: int) -> int:
    """How many of the wanted connections the limit allows; for 0 (unlimited), all that it allows."""
    files = _soft_limit()
    if not files:
        return wanted
    most = max(files - RESERVED, files // 2)
    return min(wanted, most) if wanted else most


def _soft_limit() -> int:
    """The soft limit of open files; 0 if there is none."""
    if sys.platform == "win32":
        return 0
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0 if soft == resource.RLIM_INFINITY else soft
