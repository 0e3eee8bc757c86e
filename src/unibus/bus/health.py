"""How the bus is, in one object: for people, and for whoever asks every few seconds."""

from collections.abc import Generator
from dataclasses import dataclass

from unibus.bus.build_kind import BUILD
from unibus.stores.seam.store import StoreHealth


@dataclass(frozen=True)
class HealthStatus:
    """`status` is "healthy", "degraded", "stopped" or "unhealthy".

    Degraded: it works, but not as was asked for, or its disk is full. Stopped: it takes messages, and hands none over
    until `start()`; that is `ok`, and not healthy. May be awaited. `build` is "compiled" or "plain" (plain Python,
    about ten times slower): a fact, not a problem.
    """

    status: str
    problem: str = ""
    channels: int = 0
    store: StoreHealth | None = None
    build: str = BUILD

    @property
    def ok(self) -> bool:
        return self.status != "unhealthy"

    def __await__(self) -> Generator[object, None, "HealthStatus"]:
        yield from ()
        return self


def health_of(closed: bool, stopped: bool, degraded: str, store: StoreHealth | None, channels: int) -> HealthStatus:
    if closed:
        return HealthStatus("unhealthy", "the bus is closed", channels, store)
    if store is not None and not store.ok:
        return HealthStatus("unhealthy", store.problem, channels, store)
    if stopped:
        return HealthStatus("stopped", "stop() was called: messages wait for start()", channels, store)
    problem = degraded if store is None or not store.warning else store.warning
    return HealthStatus("degraded" if problem else "healthy", problem, channels, store)
