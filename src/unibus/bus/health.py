"""The health of a bus in one object: for humans, and for probes that ask every few seconds."""

from collections.abc import Generator
from dataclasses import dataclass

from unibus.bus.build_kind import BUILD
from unibus.counting import counted
from unibus.display import described, without_secrets
from unibus.stores.seam.store import StoreHealth


@dataclass(frozen=True)
class HealthStatus:
    """`status` is "healthy", "degraded", "stopped" or "unhealthy".

    - degraded: the bus works, but with a weaker setting than requested, or its disk is full.
    - stopped: the bus accepts messages and delivers none until `start()`. That is `ok`, but not healthy.
    - unhealthy: the bus is closed, or its store has failed.

    `build` is "compiled" or "plain" (plain Python, about ten times slower); it does not change the status. The object
    may be awaited, so that async and sync programs write the same line.
    """

    status: str
    problem: str = ""
    channels: int = 0
    store: StoreHealth | None = None
    build: str = BUILD

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        problem = f" ({self.problem})" if self.problem else ""
        place = "in memory" if self.store is None else without_secrets(self.store.url)
        return f"{self.status}{problem}, {counted(self.channels, 'channel')}, {place}, {self.build}"

    @property
    def ok(self) -> bool:
        return self.status != "unhealthy"

    def __await__(self) -> Generator[object, None, "HealthStatus"]:
        # A generator that yields nothing: `await` returns at once, without a turn of the loop.
        yield from ()
        return self


def health_of(closed: bool, stopped: bool, degraded: str, store: StoreHealth | None, channels: int) -> HealthStatus:
    """The status by its most serious cause: closed, then a failed store, then stopped, then degraded."""
    if closed:
        return HealthStatus("unhealthy", "the bus is closed", channels, store)
    if store is not None and not store.ok:
        return HealthStatus("unhealthy", store.problem, channels, store)
    if stopped:
        return HealthStatus("stopped", "stop() was called: messages are delivered after start()", channels, store)
    # The store's warning first: it is of now, and `degraded` of the start.
    problem = degraded if store is None or not store.warning else store.warning
    return HealthStatus("degraded" if problem else "healthy", problem, channels, store)
