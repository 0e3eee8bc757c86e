"""How many connections the files of this process allow: each of them is one, and the store needs some too.

A usual soft limit is 1,024 files, with a hard limit far above it, up to which a process may raise its own. A server
does that at its start, as far as its connections need it. What the hard limit leaves is the bound: a connection that is
refused is better than a store that cannot open a file. Windows has no such limit.
"""

import sys
from typing import Final

if sys.platform != "win32":
    import resource

RESERVED: Final = 128
"""Files for the store, the ports, logs, and what a program opens besides."""


def raise_limit(connections: int) -> None:
    """Let this process open the files for so many connections, as far as the hard limit goes."""
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
        return  # A kernel may have a lower limit than it says. What is in force is read again.


def connections_allowed(wanted: int) -> int:
    """How many of the wanted connections the limit allows; 0, for as many as come, becomes what it allows."""
    files = _soft_limit()
    if not files:
        return wanted
    most = max(files - RESERVED, files // 2)
    return min(wanted, most) if wanted else most


def _soft_limit() -> int:
    """0 where there is none."""
    if sys.platform == "win32":
        return 0
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0 if soft == resource.RLIM_INFINITY else soft
