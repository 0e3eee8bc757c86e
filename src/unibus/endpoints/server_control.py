"""The process of a server, as operations show and control it: `server` fills it in, operations read it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from unibus.endpoints.log_memory import RecentLog


def _none() -> tuple[int, int]:
    return 0, 0


@dataclass
class ServerControl:
    """`store_url` contains no password. `stop` acts as SIGTERM does; None in a program that stops itself."""

    store_url: str = ""
    started_ns: int = 0
    recent_log: RecentLog = field(default_factory=RecentLog)
    connections: Callable[[], tuple[int, int]] = _none
    """Returns the numbers of open connections and of in-flight requests."""
    stop: Callable[[], None] | None = None

    def begin(self) -> None:
        self.started_ns = time.time_ns()
        self.recent_log.attach()

    def end(self) -> None:
        self.recent_log.detach()
