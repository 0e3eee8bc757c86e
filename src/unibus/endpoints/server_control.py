"""What a server lets operators see of its process, and do with it: filled in by `server`, read by operations."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from unibus.endpoints.log_memory import RecentLog


def _none() -> tuple[int, int]:
    return 0, 0


@dataclass
class ServerControl:
    """`store_url` has no password. `stop` stops as SIGTERM does; None where a program of its own runs the server."""

    store_url: str = ""
    started_ns: int = 0
    recent_log: RecentLog = field(default_factory=RecentLog)
    connections: Callable[[], tuple[int, int]] = _none
    """Gives how many connections are open, and how many requests are being answered."""
    stop: Callable[[], None] | None = None

    def begin(self) -> None:
        self.started_ns = time.time_ns()
        self.recent_log.attach()

    def end(self) -> None:
        self.recent_log.detach()
